"""count.py, whose process eats memory, a little at a time, once `count/eat-<role>` is there."""

import os
import runpy
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = f"{os.environ['DEEPREC_EXT_ROLE']}-{os.environ['DEEPREC_EXT_INDEX']}"


def eat():
    wish = os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "count", f"eat-{NAME}")
    eaten = []
    while True:
        time.sleep(0.02)
        if os.path.exists(wish):
            eaten.append(b"x" * (16 << 20))


threading.Thread(target=eat, daemon=True).start()
sys.argv[0] = os.path.join(HERE, "count.py")
runpy.run_path(sys.argv[0], run_name="__main__")
