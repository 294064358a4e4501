# SPDX-License-Identifier: Apache-2.0
"""What Python tests call of the C ABI (client/include/ferry), by ctypes."""

import ctypes


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("client_dir", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("timeout_ns", ctypes.c_uint64)]


class Range(ctypes.Structure):
    _fields_ = [("arena", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class Transfer(ctypes.Structure):
    _fields_ = [("remote_device", ctypes.c_uint64), ("key", ctypes.c_char_p), ("key_bytes", ctypes.c_size_t),
                ("ranges", ctypes.POINTER(Range)), ("range_count", ctypes.c_size_t),
                ("strided", ctypes.c_void_p), ("blocks", ctypes.c_void_p),
                ("data_type", ctypes.c_int), ("dims", ctypes.c_void_p), ("dim_count", ctypes.c_size_t),
                ("has_defined_at", ctypes.c_int), ("defined_timeline", ctypes.c_uint32),
                ("defined_value", ctypes.c_uint64), ("deadline_ns", ctypes.c_uint64)]


class PostOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("domain", ctypes.c_char_p),
                ("domain_bytes", ctypes.c_size_t), ("over_timeline", ctypes.c_uint32),
                ("deadline_ns", ctypes.c_uint64), ("priority", ctypes.c_int32), ("route", ctypes.c_int),
                ("request_id", ctypes.c_char_p), ("request_id_bytes", ctypes.c_size_t)]


class Device(ctypes.Structure):
    _fields_ = [("global_device_id", ctypes.c_uint64), ("kind", ctypes.c_int), ("name", ctypes.c_char_p),
                ("uuid", ctypes.c_ubyte * 16)]


class Ferry:
    """The library; what returns a ferry_status raises it."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.ferry_status_message.restype = ctypes.c_char_p
        self.lib.ferry_session_device.restype = Device
        self.lib.ferry_arena_device.restype = ctypes.c_uint64
        for name in ("ferry_arena_data", "ferry_cuda_arena"):
            getattr(self.lib, name).restype = ctypes.c_void_p

    def call(self, name, *arguments):
        function = getattr(self.lib, name)
        function.restype = ctypes.c_void_p
        status = function(*arguments)
        if status:
            text = self.lib.ferry_status_message(ctypes.c_void_p(status)).decode()
            self.lib.ferry_status_free(ctypes.c_void_p(status))
            raise RuntimeError(text)

    def post(self, send, session, device, remote, where, timeline, key=b"key", defined_at=None):
        """One transfer of one range, or of an array of ranges: its batch. `defined_at`: a counter and its value."""
        ranges = (Range * 1)(where) if isinstance(where, Range) else where
        transfer = Transfer(remote_device=remote, key=key, key_bytes=len(key),
                            ranges=ctypes.cast(ranges, ctypes.POINTER(Range)), range_count=len(ranges))
        if defined_at is not None:
            transfer.has_defined_at = 1
            transfer.defined_timeline, transfer.defined_value = defined_at
        options = PostOptions(struct_size=ctypes.sizeof(PostOptions), over_timeline=timeline)
        batch = ctypes.c_void_p()
        self.call("ferry_cross_host_send" if send else "ferry_cross_host_receive", session,
                  ctypes.c_uint64(device), ctypes.byref(transfer), ctypes.c_size_t(1), ctypes.byref(options),
                  ctypes.byref(batch))
        return batch
