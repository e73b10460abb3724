"""live.js and clock.js in Chromium: on a small page whose server and socket the test plays, under the real policy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.server import BASE, Golden15
from tests.support.wait import until

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><html lang="en"><head><title>t</title><link rel="stylesheet" href="/static/app.css">
<script type="module" src="/static/live.js"></script></head><body>
<div id="live" data-incident="42" data-seq="10" data-after="/incidents/42/after" data-now="{now}">
<p data-live="banner" role="alert" hidden></p><p data-live="notice" role="status" class="visually-hidden"></p>
<span data-live="chip" hidden></span>
<b id="since" class="num" data-since="{since}"></b> <time id="due" class="num" data-due="{due}"></time>
<div data-slot="head" data-needs-live><form action="/x"><button id="take">Take command</button>
<button disabled>Never</button></form></div>
<div data-slot="list"><ul><li data-key="a"><a href="#a">old</a></li></ul>
<form action="/y"><input name="word" aria-label="word"></form>
<div class="scroll" id="box"><p id="tall">tall</p></div></div>
<form><button id="note">Note</button></form></div></body></html>"""
LIST = """<ul><li data-key="b"><a href="#b">newer</a></li><li data-key="a"><a href="#a">old</a></li></ul>
<form action="/y"><input name="word" aria-label="word"></form><div class="scroll"><p>tall</p></div>
<img src="x" onerror="document.title = 'executed'"><script>document.title = "executed"</script>"""

# What a browser says of answers that these tests give, and of the hostile list.
EXPECTED = re.compile("status of (500|404)|WebSocket|inline (script|event handler)")


class Played:
    """The server and the socket of the page, at a time of the test's choosing."""

    def __init__(self, page: Any, policy: str, now: datetime) -> None:
        self.page, self.now, self.began = page, now, None
        self.sockets: list[Any] = []
        self.asked: list[str] = []
        self.seq, self.status, self.refuse_sockets, self.frames = 10, 200, False, True
        self.html: dict[str, str] = {"list": LIST, "gone": "<p>no such place</p>"}
        values = {"now": now.isoformat(), "since": (now - timedelta(minutes=6, seconds=41)).isoformat()}
        body = PAGE.format(due=(now + timedelta(minutes=4, seconds=27.5)).isoformat(), **values)
        headers = {"Content-Security-Policy": policy, "Content-Type": "text/html"}
        page.route("**/incidents/42", lambda route: route.fulfill(headers=headers, body=body))
        page.route("**/incidents/42/after*", self.answer)
        page.route("**/incidents/x", lambda route: route.fulfill(status=404))
        page.route_web_socket("**/ws/incidents/42", self.open)

    def answer(self, route: Any) -> None:
        self.asked.append(route.request.url)
        # Without a time: this server cannot know how far the page's clock was wound on.
        news = {"seq": self.seq, "now": "", "count": self.seq - 10, "html": self.html}
        route.fulfill(status=self.status, body=json.dumps(news), content_type="application/json")

    def open(self, one: Any) -> None:
        self.sockets.append(one)
        if self.refuse_sockets:
            one.close(code=1011)
            return
        one.on_message(lambda text: self.pong(one, json.loads(text)))
        self.say("hello")

    def pong(self, one: Any, said: dict[str, Any]) -> None:
        if said["kind"] == "ping" and self.frames:
            one.send(json.dumps({"kind": "pong", "c": said["c"], "s": self.now.timestamp() * 1000 + said["c"]}))

    def say(self, kind: str, seq: int | None = None) -> None:
        self.sockets[-1].send(json.dumps({"kind": kind, "seq": seq or self.seq, "now": self.now.isoformat()}))


@pytest.fixture
def play(visit: Callable[..., Any], server: Golden15) -> Iterator[Callable[..., tuple[Any, Played]]]:
    """Opens the page; the browser's own clock is `browser_off` from the server's."""
    import urllib.request

    with urllib.request.urlopen(server.url + "/sign-in/") as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "'unsafe" not in policy
    opened: list[Any] = []

    def open_one(browser_off: timedelta = timedelta(), **options: Any) -> tuple[Any, Played]:
        page = visit()
        opened.append(page)
        now = datetime.now(UTC).replace(microsecond=0)
        page.clock.install(time=now + browser_off)
        played = Played(page, policy, now)
        for name, value in options.items():
            setattr(played, name, value)
        page.goto("/incidents/42")
        return page, played

    yield open_one
    for page in opened:
        page.goto("about:blank")  # nothing is said after this
        page.troubles[:] = [text for text in page.troubles if not EXPECTED.search(text)]


Play = Callable[..., tuple[Any, Played]]


def test_a_ring_replaces_the_parts_and_nothing_in_them_executes(play: Play) -> None:
    page, played = play()
    expect(page.locator("[data-live=chip]")).to_contain_text("live · ")
    played.seq = 13
    played.say("seq")
    expect(page.get_by_text("newer")).to_be_visible()
    assert page.locator("#live").get_attribute("data-seq") == "13"
    assert played.asked[-1].endswith("/after?seq=10")
    assert page.title() == "t"
    assert page.locator("[data-live=notice]").text_content() == ""  # nothing was missed


def test_focus_typed_text_and_scroll_stay(play: Play) -> None:
    page, played = play(html={"list": LIST.split("<img")[0]})
    page.locator("#box").evaluate("box => { box.style.height = '20px'; box.style.overflow = 'auto'; }")
    page.get_by_role("link", name="old").focus()
    played.seq = 11
    played.say("seq")
    expect(page.get_by_text("newer")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == "old"
    page.get_by_label("word").fill("loss spike")
    played.seq, played.html = 12, {"list": LIST.split("<img")[0].replace("newer", "newest")}
    played.say("seq")
    expect(page.locator("#live")).to_have_attribute("data-seq", "12")
    assert page.get_by_text("newest").count() == 0  # not under the hands of somebody who types
    page.locator("#note").focus()
    expect(page.get_by_text("newest")).to_be_visible()
    assert page.get_by_label("word").input_value() == "loss spike"


PREFILLED = (
    '<p>{count} of 2</p><form action="/z"><input name="why" aria-label="why" value="{count} of 2 answered"></form>'
)


def test_a_field_that_the_server_filled_counts_as_typed_in_only_when_it_was(play: Play) -> None:
    page, played = play(html={"list": PREFILLED.format(count=1)})
    why = page.get_by_label("why")

    def ring(count: int) -> None:
        played.seq, played.html = played.seq + 1, {"list": PREFILLED.format(count=count)}
        played.say("seq")
        expect(page.locator("#live")).to_have_attribute("data-seq", str(played.seq))

    ring(1)
    why.focus()
    page.keyboard.press("End")
    ring(2)
    expect(why).to_have_value("2 of 2 answered")
    expect(why).to_be_focused()
    page.keyboard.type("!")
    expect(why).to_have_value("2 of 2 answered!")
    ring(3)
    assert page.get_by_text("3 of 2").count() == 0
    page.locator("#note").focus()
    expect(page.get_by_text("3 of 2")).to_be_visible()


def test_a_part_that_is_the_same_again_is_left_as_it_is(play: Play) -> None:
    same = LIST.split("<img")[0]
    page, played = play(html={"list": same})
    played.seq = 11
    played.say("seq")
    newer = page.get_by_text("newer")
    expect(newer).to_be_visible()
    newer.evaluate("one => { one.mine = true; }")
    played.seq = 12
    played.say("seq")
    expect(page.locator("#live")).to_have_attribute("data-seq", "12")
    assert newer.evaluate("one => one.mine")


def test_silence_is_said_actions_go_off_and_return(play: Play) -> None:
    page, played = play()
    expect(page.locator("[data-live=chip]")).to_contain_text("live · ")
    played.frames, played.refuse_sockets, played.status = False, True, 500
    page.clock.run_for(24_000)
    assert page.locator("body").get_attribute("data-live") == "live"
    page.clock.run_for(3_300)
    assert page.locator("body").get_attribute("data-live") == "stale"
    banner = page.get_by_role("alert")
    text = r"Disconnected for 0:(2[7-9]|3\d)\. This is how it was at T\+6:4[1-6]; actions are off, notes are not\."
    expect(banner).to_have_text(re.compile(f"^{text}$"))
    expect(page.locator("[data-live=chip]")).to_have_text("stale")
    expect(page.locator("#take")).to_be_disabled()
    expect(page.locator("#note")).to_be_enabled()
    played.frames, played.refuse_sockets, played.status, played.seq = True, False, 200, 24
    while page.locator("body").get_attribute("data-live") == "stale":  # a new try every 8 s at the latest
        page.clock.run_for(500)
        page.wait_for_timeout(20)
    expect(banner).to_be_hidden()
    expect(page.locator("#take")).to_be_enabled()
    expect(page.get_by_role("button", name="Never")).to_be_disabled()
    expect(page.locator("[data-live=notice]")).to_have_text("caught up 14 events")
    assert page.locator("[data-live=notice]").evaluate("one => one.offsetHeight") > 10  # for eyes too
    page.clock.run_for(9_000)
    expect(page.locator("[data-live=notice]")).to_have_text("")


def test_without_a_socket_the_page_asks_by_itself(play: Play) -> None:
    page, played = play(refuse_sockets=True)
    page.evaluate("Math.random = () => 1")  # tries to open a socket ask too: here as rarely as they may
    for _ in range(20):
        page.clock.run_for(1_000)
        page.wait_for_timeout(20)
    assert len(played.sockets) >= 3
    asked = len(played.asked)
    for _ in range(24):
        page.clock.run_for(1_000)
        page.wait_for_timeout(20)
    assert len(played.asked) - asked >= 6  # every five seconds; the tries alone are three
    played.seq = 11
    page.clock.run_for(5_500)
    expect(page.locator("#live")).to_have_attribute("data-seq", "11")
    page.clock.run_for(30_000)
    expect(page.locator("body")).to_have_attribute("data-live", "live")


def test_fetches_do_not_overlap_and_the_last_seq_is_reached(play: Play) -> None:
    page, played = play()
    held: list[Any] = []
    page.unroute("**/incidents/42/after*")
    page.route("**/incidents/42/after*", lambda route: held.append(route))
    for seq in range(11, 31):
        played.say("seq", seq)
    page.wait_for_function("document.querySelector('#live')")
    until(lambda: page.wait_for_timeout(20) or held, 5, "a question")
    page.wait_for_timeout(200)
    assert len(held) == 1
    for seq in (20, 30):
        played.seq = seq
        played.answer(held.pop())
        until(lambda: page.wait_for_timeout(20) or held or seq == 30, 5, "the next question")  # noqa: B023
    expect(page.locator("#live")).to_have_attribute("data-seq", "30")
    assert [url.split("=")[1] for url in played.asked] == ["10", "20"]


@pytest.mark.parametrize("hours", [-3, 0, 3])
def test_the_clock_is_the_servers_whatever_the_browsers_says(play: Play, hours: int) -> None:
    page, played = play(timedelta(hours=hours))
    expect(page.locator("#since")).to_have_text(re.compile(r"^T\+6:4[1-6]$"))
    expect(page.locator("#due")).to_have_text(re.compile("^4:2[1-7] left$"))
    page.clock.run_for(1_000)
    played.frames = False  # answers would seem to take minutes while this clock is wound on
    page.clock.run_for(59_000)
    expect(page.locator("#since")).to_have_text(re.compile(r"^T\+7:4[1-9]$"))
    expect(page.locator("#due")).to_have_text(re.compile("^3:(2[0-7]|1[89]) left$"))
    page.clock.run_for(5 * 60_000)
    expect(page.locator("#due")).to_have_text(re.compile(r"^\+1:(3[2-9]|4[0-5]) over$"))


@pytest.mark.parametrize("sign", ["the network returns", "a beat"])
def test_a_page_that_slept_takes_the_servers_time_again(play: Play, sign: str) -> None:
    page, played = play()
    expect(page.locator("#since")).to_have_text(re.compile(r"^T\+6:4[1-6]$"))
    page.clock.run_for(2_000)  # the first questions are answered
    played.now += timedelta(minutes=20)  # performance.now() stood still meanwhile
    if sign == "a beat":
        played.say("beat")
    else:
        page.evaluate("window.dispatchEvent(new Event('online'))")
    page.clock.run_for(1_000)
    expect(page.locator("#since")).to_have_text(re.compile(r"^T\+26:4[1-9]$"))


SAMPLES = """async () => {
  const { sample, serverNow } = await import("/static/servertime.js?alone");
  const offset = () => Math.round(serverNow() - performance.now());
  const found = [];
  const asked = [[0, 5001, 2], [200, 5270, 300], [400, 5400, 401], [500, 35500, 60500], [500, 1205560, 640]];
  for (const [sent, server, received] of asked) {
    sample(sent, server, received);
    found.push(offset());
  }
  return found;
}"""


def test_the_quickest_answer_counts_until_one_cannot_be(play: Play) -> None:
    page, _ = play()
    # slower ones change nothing, one of a minute is none, and one that contradicts all means that this machine slept
    assert page.evaluate(SAMPLES) == pytest.approx([5000, 5000, 5000, 5000, 1204990], abs=2)


def test_who_was_signed_out_is_led_to_the_sign_in_page(play: Play) -> None:
    page, played = play()
    expect(page.locator("[data-live=chip]")).to_contain_text("live · ")
    with page.expect_navigation():
        played.sockets[-1].close(code=4401)
    expect(page.locator("#live")).to_be_visible()
    played.sockets[-1].close(code=4401)  # once, and not for ever
    page.clock.run_for(1_500)
    assert len(played.sockets) == 3


TELL = """
from django.db import transaction
from incidents.models import Incident
from incidents.services.timeline import tell
with transaction.atomic():
    for _ in range({count}):
        seq = tell(Incident.objects.get(pk={pk}), "note", None, text="x").seq
print("told", seq)
"""


def tell_there(server: Golden15, pk: int, count: int) -> int:
    """Another process of that server commits events; the last one's seq."""
    command = [sys.executable, "manage.py", "shell", "-c", TELL.format(pk=pk, count=count)]
    done = subprocess.run(command, cwd=BASE, env=server.env, check=True, timeout=60, capture_output=True, text=True)
    return int(done.stdout.split("told")[1])


def test_the_real_page_is_live_and_survives_restarts_of_everything_under_it(
    start_golden15: Callable[..., Golden15], chromium: Any
) -> None:
    server = start_golden15()
    page = chromium.new_context(base_url=server.url).new_page()
    page.goto(server.fresh_link())
    page.goto("/incidents/declare")
    page.get_by_label("Which job, or which nodes?").fill("nowhere-[1-2]")
    page.get_by_role("button", name="Declare").click()
    page.wait_for_url("**/incidents/*")
    pk = int(page.locator("#live").get_attribute("data-incident"))
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)

    def reached(more: int) -> None:
        seq = tell_there(server, pk, more)
        page.wait_for_function("seq => Number(live.dataset.seq) >= seq", arg=seq, timeout=15_000)

    expect(page.locator("[data-live=chip]")).to_be_visible()
    reached(1)
    for name in ("broker", "web", "worker"):
        old = server.part(name)
        old.kill()
        old.wait(10)
        until(lambda old=old, name=name: server.part(name).pid != old.pid, 20, f"a new {name}")  # type: ignore[misc]
        reached(2)
    expect(page.locator("body")).to_have_attribute("data-live", "live")
    assert "Traceback" not in server.output
    page.context.close()
