"""A WebSocket client of the ASGI application, in this process. Channels' own one wants daphne to be installed."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator


class Socket(ApplicationCommunicator):
    """`headers` as ASGI has them; frames are JSON."""

    def __init__(self, application: Any, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        scope = {"type": "websocket", "scheme": "ws", "path": path, "query_string": b"", "headers": headers}
        super().__init__(application, {**scope, "subprotocols": []})

    async def connect(self, timeout: float) -> tuple[bool, int | None]:
        """Whether it was accepted, and else the code."""
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(timeout)
        return answer["type"] == "websocket.accept", answer.get("code")

    async def send_to(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.send_input({"type": "websocket.receive", "text": text_data, "bytes": bytes_data})

    async def send_json_to(self, data: object) -> None:
        await self.send_to(json.dumps(data))

    async def receive_json_from(self, timeout: float = 5) -> Any:
        message = await self.receive_output(timeout)
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def disconnect(self, timeout: float) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(timeout)
