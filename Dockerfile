# Tessera's image: the node agent, the admission webhook, and the command for people.
#
#   docker build -t tessera .
#
# /opt/tessera holds the project and its locked dependencies, compiled to byte code; /usr/local/bin the commands.
# tests/cluster/images.py makes the same layout where there is no container engine; a test compares the two.
ARG DEBIAN=bookworm

FROM debian:${DEBIAN}-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make python3 python3-venv
WORKDIR /src
COPY requirements/uv.txt requirements/run.txt requirements/dev.txt requirements/
RUN python3 -m venv /uv && /uv/bin/pip install --no-cache-dir --require-hashes -r requirements/uv.txt
RUN /uv/bin/uv pip install --no-cache --no-deps --require-hashes --only-binary :all: --python /usr/bin/python3 \
    --target /opt/tessera -r requirements/run.txt
COPY . .
# The build's own dependencies are pinned by hash too. ziglang compiles the library for glibc 2.17, x86_64 and aarch64.
RUN /uv/bin/uv build --wheel --build-constraints requirements/dev.txt --require-hashes --out-dir /wheel . \
 && python3 -m zipfile -e /wheel/*.whl /opt/tessera \
 && rm -rf /opt/tessera/bin /opt/tessera/.lock \
 && { python3 -m compileall -qq --invalidation-mode=unchecked-hash /opt/tessera || true; }
# -I: neither the working directory nor the environment changes what a command imports.
RUN for command in tessera-driver=dra_driver tessera-mutator=claim_mutator tessera=tessera kubectl-tessera=tessera; do \
      printf '#!/usr/bin/python3 -I\nimport sys\nsys.path.insert(0, "/opt/tessera")\nfrom %s.main import main\nsys.exit(main())\n' \
        "${command#*=}" > "/usr/local/bin/${command%%=*}" && chmod 755 "/usr/local/bin/${command%%=*}"; \
    done

FROM debian:${DEBIAN}-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/tessera /opt/tessera
COPY --from=build /usr/local/bin/tessera /usr/local/bin/tessera-driver /usr/local/bin/tessera-mutator /usr/local/bin/kubectl-tessera /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/tessera"]
