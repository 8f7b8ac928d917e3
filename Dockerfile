FROM python:3.13-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY memsvc memsvc
COPY importers importers
COPY supabase/migrations supabase/migrations
RUN pip install --no-cache-dir . && useradd --create-home memsvc && rm -rf /src
WORKDIR /home/memsvc
USER memsvc
ENTRYPOINT ["memsvc"]
