# A training node with PyTorch and hangwatch, for the demonstration in compose.yaml. In an image of your own one line
# is enough, with the wheel that `make dist` leaves: RUN pip install hangwatch-*.whl
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# The page that HTML reports hold is built too (hatch_build.py), with a Node that stays in this stage.
RUN python3 -m venv /opt/build && /opt/build/bin/pip install 'build>=1.2'
WORKDIR /source
COPY . .
RUN /opt/build/bin/python -m build --wheel --outdir /wheels .

FROM ${BASE}
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# The index from which PyTorch is installed, e.g. its own one for CPUs, which is smaller; empty for pip's default.
ARG TORCH_INDEX=
ENV PATH=/opt/training/bin:$PATH
RUN python3 -m venv /opt/training && pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} 'torch==2.13.0' \
    && pip install numpy
COPY --from=build /wheels /wheels
RUN pip install /wheels/hangwatch-*.whl \
    && groupadd --gid 10001 trainer \
    && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin trainer
COPY docker/train.sh /usr/local/bin/train
ENV PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
USER 10001:10001
WORKDIR /home/trainer
ENTRYPOINT ["train"]
