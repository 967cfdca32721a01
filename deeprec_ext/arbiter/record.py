class Record:
    def __init__(self, path):
        self.path = path

    def add(self, cluster, decision):
        pass
