"""nginx as a plain proxy: the bound for any router, since it looks at nothing.

One process without a master, so that its CPU and memory are those of one process. Called by `peers.launch`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.peers import install

BODY_BYTES_MAX: Final = 64 * 1024**2
CONNECTIONS_MAX: Final = 10240
"""Of clients and engines together; nginx takes memory for them when it starts."""
BODY_IN_MEMORY_BYTES: Final = 1024**2
"""Bodies under it never touch the disk."""


def start(name: str, config: str, port: int, folder: Path, core: int | None) -> processes.Process:
    """nginx with this configuration; it is not waited for."""
    program = install.ensure("nginx") / "nginx"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.conf"
    path.write_text(config)
    argv = [str(program), "-e", "stderr", "-p", str(folder), "-c", str(path)]
    return processes.start(name, argv, folder, core=core, url=f"http://127.0.0.1:{port}")


def render_proxy(engine_urls: Sequence[str], port: int, balance: str) -> str:
    """`balance`: a directive of an upstream block, empty for round robin. Bodies are read whole before they are sent,
    as a router must that reads prompts; answers are passed on as they come, as streams must be."""
    servers = "\n".join(f"    server {url.removeprefix('http://')};" for url in engine_urls)
    return _render(
        f"""
  upstream engines {{
    {balance}
{servers}
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}"""
    )


def _render(body: str) -> str:
    return f"""daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections {CONNECTIONS_MAX}; }}
http {{
  access_log off;
  default_type application/json;
  keepalive_timeout 600s;
  keepalive_requests 1000000000;
  client_max_body_size {BODY_BYTES_MAX};
  client_body_buffer_size {BODY_IN_MEMORY_BYTES};
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  tcp_nodelay on;{body}
}}
"""
