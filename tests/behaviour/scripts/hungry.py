"""count.py, whose process eats memory once `count/eat-<role>` is there.

The file says how many MiB, and how many in a second: `1024 10`; empty: without end, 800 a second.
"""

import os
import runpy
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = f"{os.environ['DEEPREC_EXT_ROLE']}-{os.environ['DEEPREC_EXT_INDEX']}"
TICK_SECONDS = 0.02


def eat():
    wish = os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "count", f"eat-{NAME}")
    eaten = []
    while True:
        time.sleep(TICK_SECONDS)
        if not os.path.exists(wish):
            continue
        with open(wish) as file:
            most, speed = (float(word) for word in (file.read() or "inf 800").split())
        if len(eaten) * speed * TICK_SECONDS < most:
            eaten.append(b"x" * int(speed * TICK_SECONDS * (1 << 20)))


threading.Thread(target=eat, daemon=True).start()
sys.argv[0] = os.path.join(HERE, "count.py")
runpy.run_path(sys.argv[0], run_name="__main__")
