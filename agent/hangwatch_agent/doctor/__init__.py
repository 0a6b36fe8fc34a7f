"""The probe of `hangwatch doctor`: what stands in a rank's place and looks at its host, its GPUs and its peers.

`rank` is the process that the launcher sees. It uses the standard library only and cannot hang: what may hang runs in
children (`parts`), each with a deadline of its own that the kernel enforces, each killed with all that it has started.
"""
