"""The peer of `bench backfill`: ccxt fetching candles in a loop, as its manual shows.

backfill_peer.py REST_BASE SECONDS SINCE_MS: prints how many candles and requests it had in that time, as JSON.
"""

import json
import sys
import time

import ccxt

base, seconds, since = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
exchange = ccxt.binance({"enableRateLimit": True})
exchange.urls["api"]["public"] = base + "/api/v3"
# Its markets are given, so that only candles are asked for.
exchange.set_markets([
    {
        "id": "BTCUSDT", "symbol": "BTC/USDT", "base": "BTC", "quote": "USDT", "baseId": "BTC", "quoteId": "USDT",
        "type": "spot", "spot": True, "margin": False, "swap": False, "future": False, "option": False,
        "contract": False, "linear": None, "inverse": None, "settle": None, "settleId": None, "active": True,
        "precision": {"amount": 1e-8, "price": 0.01},
        "limits": {"amount": {}, "price": {}, "cost": {}, "leverage": {}}, "info": {},
    }
])
candles = requests = 0
began = time.monotonic()
while time.monotonic() - began < seconds:
    page = exchange.fetch_ohlcv("BTC/USDT", "1m", since, 1000)
    requests += 1
    if not page:
        break
    candles += len(page)
    since = page[-1][0] + 60_000
print(json.dumps({"candles": candles, "requests": requests, "seconds": time.monotonic() - began}))
