"""The web process. It serves a socket that the supervisor opened, so a restart of it loses no connection attempt."""

import os
import socket

import uvicorn

from config.env import flag

SOCKET_FD = "GOLDEN15_SOCKET_FD"
GRACE = 3  # seconds for open requests; open WebSockets would otherwise hold up the stop for ever


def main() -> None:
    listener = socket.socket(fileno=int(os.environ[SOCKET_FD]))
    config = uvicorn.Config(
        "config.asgi:application",
        lifespan="off",
        ws="websockets-sansio",
        ws_max_size=16 * 1024,  # pages send pings only
        timeout_graceful_shutdown=GRACE,
        log_config=None,  # settings.LOGGING
        access_log=False,  # a sign-in link's address is a secret
        server_header=False,
        proxy_headers=flag("GOLDEN15_HTTPS"),
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
