"""The gRPC services, who may call them, who may enter, and the border that every message passes."""
