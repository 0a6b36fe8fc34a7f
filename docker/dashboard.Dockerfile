# The dashboard: small, without a shell's needs, not root. Build it from the repository's root:
#   docker build --file docker/dashboard.Dockerfile --tag hangwatch-dashboard .
#   buildah build --format docker --file docker/dashboard.Dockerfile ...     (OCI images have no HEALTHCHECK)
# Any base with Python 3.11 or newer and its venv will do, e.g. --build-arg BASE=registry.example/python:3.12
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# The page is built too (hatch_build.py), with a Node that comes as a wheel and stays in this stage.
RUN python3 -m venv /opt/build && /opt/build/bin/pip install 'build>=1.2'
WORKDIR /source
COPY . .
RUN /opt/build/bin/python -m build --wheel --outdir /wheels . \
    && python3 -m venv /opt/hangwatch \
    && wheel=$(ls /wheels/hangwatch-*.whl) \
    && /opt/hangwatch/bin/pip install "${wheel}[dashboard,notify,postgres]"

FROM ${BASE}
COPY --from=build /opt/hangwatch /opt/hangwatch
RUN groupadd --gid 10001 hangwatch \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin hangwatch \
    && install --directory --owner hangwatch --group hangwatch --mode 0700 /data
ENV PATH=/opt/hangwatch/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HANGWATCH_DATABASE=/data/dashboard.db
USER 10001:10001
VOLUME /data
EXPOSE 8470
# In a container it cannot be on loopback, so it does not start without the two tokens (docs/security.md).
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/opt/hangwatch/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8470/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["hangwatch", "dashboard", "--host", "0.0.0.0", "--port", "8470"]
