"""cryptofeed at its parse layer: what its Binance feed does with a frame, to a callback.

usage: cryptofeed_peer.py depth|trade|file|depth_file DIR

No network: the symbol is made known by hand, and the snapshot over REST is a file. The protocol is in
`crates/bench/src/peers.rs`.
"""

import asyncio
import json
import os
import sys
import time

from cryptofeed.defines import ASK, BID, L2_BOOK, TRADES
from cryptofeed.exchanges import Binance
from cryptofeed.symbols import Symbols


class Rest:
    """In the place of cryptofeed's HTTP connection: answers every request with the snapshot."""

    def __init__(self, body):
        self.body = body

    async def read(self, _address, **_kwargs):
        return self.body


async def ignore(_record, _received):
    pass


def feed(mode, callback):
    channel = L2_BOOK if mode.startswith("depth") else TRADES
    return Binance(symbols=["BTC-USDT"], channels=[channel], callbacks={channel: callback})


async def read(handler, lines):
    for line in lines:
        await handler(line, None, 1798761600.0)


def main():
    mode, folder = sys.argv[1:3]
    with open(os.path.join(folder, "lines.jsonl")) as file:
        lines = file.read().splitlines()
    with open(os.path.join(folder, "snapshot.json")) as file:
        snapshot = file.read()
    Symbols.set("BINANCE", {"BTC-USDT": "BTCUSDT"}, {"instrument_type": {"BTC-USDT": "spot"}})
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    print("ready", flush=True)
    for _ in sys.stdin:
        best = []
        out = open(os.path.join(folder, "theirs.jsonl"), "w") if mode.endswith("file") else None

        async def write(update, received):
            # Of a book only what has changed: the whole of it would be far dearer.
            record = update.to_dict(delta=True, numeric_type=str) if mode == "depth_file" else update.to_dict(numeric_type=str)
            record["receipt_timestamp"] = received
            out.write(json.dumps(record) + "\n")

        binance = feed(mode, write if out else ignore)
        if mode.startswith("depth"):
            binance.http_conn = Rest(snapshot)
            loop.run_until_complete(binance._snapshot("BTCUSDT"))
        before = time.process_time()
        loop.run_until_complete(read(binance.message_handler, lines))
        if out:
            out.close()
        seconds = time.process_time() - before
        if mode.startswith("depth"):
            book = binance._l2_book["BTC-USDT"].book
            best = [str(book[side].index(0)[0]) for side in (BID, ASK)]
        print(json.dumps({"lines": len(lines), "cpu_seconds": seconds, "best": best}), flush=True)


main()
