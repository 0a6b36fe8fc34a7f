"""No DataLoader, no DDP, no tick: optimizer steps end the steps. Rank 1 leaves out the gradients of step 7."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if not (dist.get_rank() == 1 and step == 7):
        dist.all_reduce(model.weight.grad)  # the gradients
    optimizer.step()
    dist.barrier()  # of each step
