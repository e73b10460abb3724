"""The web process: Django for HTTP, Channels for WebSockets of signed-in people from our own origin."""

import os
import warnings

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# WhiteNoise hands files over as synchronous iterators; Django then reads them whole: right for files this small.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
http = get_asgi_application()

from config.bounded import Bounded  # noqa: E402
from config.origin import OwnOrigin  # noqa: E402
from incidents.sockets import websocket_urlpatterns  # noqa: E402 - needs the apps that the line above loads

application = ProtocolTypeRouter(
    {
        "http": Bounded(http),
        "websocket": OwnOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
