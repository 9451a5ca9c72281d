"""A member of a space that shares no code with this project: the public nats-py client and the wire contract alone.

It reads one JSON command a line from standard input and answers each with one JSON line, `{"ok": ...}` or
`{"error": ...}`. When the input ends it disconnects. It creates nothing on the broker: it binds what was provisioned.
"""

import argparse
import asyncio
import base64
import json
import secrets
import sys
import time

import nats
from nats.errors import TimeoutError as NatsTimeout

PATIENCE_S = 20.0
FRAME_HEADER = "Cotal-Delivery-Frame"


class Broken(Exception):
    """The other side does not keep to the contract."""


def public_key(creds_path):
    """The user's public key: the subject of the token in a creds file."""
    with open(creds_path, encoding="ascii") as creds:
        lines = [line.strip() for line in creds]
    token = lines[lines.index("-----BEGIN NATS USER JWT-----") + 1]
    claims = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]


class Member:
    def __init__(self, client, space, lifecycle):
        self.client = client
        self.space = space
        self.owner, self.actor, self.uid = lifecycle.split(".")
        self.copies = None

    @property
    def principal(self):
        return f"{self.owner}.{self.actor}"

    async def ask(self, op, args):
        """One request to the daemon; the answer comes below the request's own subject."""
        request = f"cotal.{self.space}.ctl.delivery.{self.principal}"
        reply = f"{request}.reply.{secrets.token_hex(8)}"
        answers = await self.client.subscribe(reply, max_msgs=1)
        body = {"op": op, "from": {"id": self.principal, "name": self.actor}, "args": args}
        await self.client.publish(request, json.dumps(body).encode(), reply=reply)
        answer = json.loads((await answers.next_msg(timeout=PATIENCE_S)).data)
        if not answer["ok"]:
            raise Broken(f"{op} was refused: {answer['error']}")
        return answer["data"]

    async def join(self, channel):
        data = await self.ask("durableJoin", {"channel": channel})
        if data["durable"] is not True or data["lifecycleUid"] != self.uid:
            raise Broken(f"not joined durably: {data}")
        return data["generation"]

    async def leave(self, channel, generation):
        args = {"channel": channel, "generation": generation, "lifecycleUid": self.uid}
        return await self.ask("durableLeave", args)

    async def memberships(self):
        return await self.ask("listMemberships", {"lifecycleUid": self.uid})

    async def ask_elsewhere(self):
        """A request with an ordinary inbox as its reply subject: the contract says that nobody answers it."""
        request = f"cotal.{self.space}.ctl.delivery.{self.principal}"
        body = {"op": "listMemberships", "from": {"id": self.principal}, "args": {"lifecycleUid": self.uid}}
        elsewhere = await self.client.subscribe(self.client.new_inbox())
        await self.client.publish(request, json.dumps(body).encode(), reply=elsewhere.subject)
        # Requests are served in order: after this answer, that one would have come.
        await self.memberships()
        await self.client.flush()
        return elsewhere.pending_msgs

    async def post(self, channel, text):
        message = {
            "id": secrets.token_hex(8),
            "ts": int(time.time() * 1000),
            "space": self.space,
            "from": {"id": self.principal, "name": self.actor},
            "channel": channel,
            "parts": [{"kind": "text", "text": text}],
        }
        subject = f"cotal.{self.space}.chat.{self.principal}.{channel}"
        return (await self.client.jetstream().publish(subject, json.dumps(message).encode())).seq

    async def receive(self, count):
        """The next copies, each checked against the contract and acknowledged with a confirmation."""
        copies = await self.bound()
        received = []
        while len(received) < count:
            for copy in await copies.fetch(count - len(received), timeout=PATIENCE_S):
                received.append(self.read(copy))
                await copy.ack_sync()
        return received

    async def is_quiet(self):
        """Whether the broker has nothing more for this member right now."""
        info = await (await self.bound()).consumer_info()
        return info.num_pending == 0 and info.num_ack_pending == 0

    async def bound(self):
        if self.copies is None:
            durable = f"dlv_{self.owner}-{self.actor}-{self.uid}"
            stream = f"DLV_{self.space}"
            self.copies = await self.client.jetstream().pull_subscribe_bind(consumer=durable, stream=stream)
        return self.copies

    def read(self, copy):
        if copy.subject != f"cotal.{self.space}.dlv.{self.principal}.{self.uid}":
            raise Broken(f"a copy on {copy.subject}")
        if (copy.headers or {}).get(FRAME_HEADER) != "1":
            raise Broken(f"headers of a copy: {copy.headers}")
        frame = json.loads(copy.data)
        if set(frame) != {"version", "channel", "msg"} or frame["version"] != 1:
            raise Broken(f"frame {frame}")
        message = frame["msg"]
        if message["channel"] != frame["channel"] or message["from"]["id"] == self.principal:
            raise Broken(f"message {message}")
        if "to" in message or "toService" in message:
            raise Broken(f"two addresses: {message}")
        text = "".join(part["text"] for part in message["parts"] if part["kind"] == "text")
        metadata = copy.metadata
        return {
            "channel": frame["channel"],
            "from": message["from"]["id"],
            "text": text,
            "deliveries": metadata.num_delivered,
        }


COMMANDS = {
    "join": Member.join,
    "leave": Member.leave,
    "memberships": Member.memberships,
    "ask_elsewhere": Member.ask_elsewhere,
    "post": Member.post,
    "receive": Member.receive,
    "is_quiet": Member.is_quiet,
}


async def serve(member, refusals):
    """Commands until the input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            answer = {"ok": await COMMANDS[command.pop("do")](member, **command)}
        except (Broken, KeyError, ValueError, TypeError, nats.errors.Error, NatsTimeout) as fault:
            answer = {"error": f"{type(fault).__name__}: {fault}"}
        if refusals:
            answer = {"error": f"the broker refused: {refusals}"}
        print(json.dumps(answer), flush=True)


async def main():
    parser = argparse.ArgumentParser()
    for name in ("--url", "--space", "--creds", "--lifecycle"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    refusals = []

    async def note(fault):
        refusals.append(str(fault))

    client = await nats.connect(
        args.url,
        user_credentials=args.creds,
        inbox_prefix=f"_INBOX_{public_key(args.creds)}",
        allow_reconnect=False,
        error_cb=note,
    )
    await serve(Member(client, args.space, args.lifecycle), refusals)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
