"""What a process of a job and its AIMaster say to each other, and what is noted for it. Free of TensorFlow.

A trainer of another framework uses it as it is; records come from `deeprec_ext.data.elastic_records`. It hands the agent a
handler of five methods, holds the gate while it makes a step, and tells the clock of each:

    class Trainer:
        def __init__(self):
            self.gate, self.clock, self.leaving = Gate(), StepClock(), threading.Event()
            self.agent = Agent(Identity.of_this_process("127.0.0.1:0"), self)
            self.table = {"pause": self.pause, "resume": lambda command: self.gate.open(), "leave": self.leave}

        def registered(self, reply):
            self.view = reply.view

        def receive(self, message):
            if message.HasField("command"):
                carry_out(self.table, message.command, self.agent.identity.name, self.agent.ack)

        def beat(self):
            return pb.Heartbeat(step=self.clock.global_step, training=self.clock.steps > 0)

        def tell(self, known):
            known.step = self.clock.global_step

        def fenced(self, reason):
            os._exit(75)

        def pause(self, command):
            self.gate.close(command.pause.lease_seconds)
            if not self.gate.wait_idle(command.pause.lease_seconds):
                raise TimeoutError("a step did not end within the lease")

        def leave(self, command):
            self.leaving.set()

        def train(self, step):
            self.agent.start()
            while not self.leaving.is_set():
                with self.gate.passing():
                    self.clock.completed(step())
            self.agent.close()
"""
