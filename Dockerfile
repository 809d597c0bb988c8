# One image for every part: the command says which (`api`, `worker`, `terminal-host`, `up`).
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap git tini \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/holdfast
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . ./
# A volume takes over the owner of the folder that it is mounted on.
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --create-home --uid 10001 holdfast \
    && install -d -o holdfast -g holdfast -m 0700 \
        /var/lib/holdfast /var/lib/holdfast/blobs /var/lib/holdfast/memory \
    && install -d -o holdfast -g holdfast /projects /run/holdfast

USER holdfast
ENV HOLDFAST_HOME=/var/lib/holdfast
VOLUME /var/lib/holdfast
EXPOSE 8420
# tini reaps what terminals leave behind.
ENTRYPOINT ["tini", "--", "holdfast"]
CMD ["up"]
