# SPDX-License-Identifier: Apache-2.0
"""libferry's C ABI (ferry.h, ferry_cluster.h, ferry_cuda.h, ferry_status.h) by ctypes: structs, prototypes and where it is.

The library is opened at the first use, not at import. Every function is called with the GIL released. No Python code
runs on a thread of the library: what it calls back is ``sem_post`` of the C library (see ``_waiter``).
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_size_t,
    c_ssize_t,
    c_ubyte,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Optional

from ferry._version import __version__

FOREVER = 2**64 - 1


class SessionOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("client_dir", c_char_p),
        ("name", c_char_p),
        ("timeout_ns", c_uint64),
        ("no_reattach", c_int),
        ("reattach_timeout_ns", c_uint64),
    ]


class Device(Structure):
    _fields_ = [("global_device_id", c_uint64), ("kind", c_int), ("name", c_char_p), ("uuid", c_ubyte * 16)]


class ClusterDevice(Structure):
    _fields_ = [
        ("global_device_id", c_uint64),
        ("kind", c_int),
        ("local", c_int),
        ("name", c_char_p),
        ("node", c_char_p),
    ]


class Limits(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes", c_uint64),
        ("arenas", c_uint64),
        ("transfers_in_flight", c_uint64),
        ("batch_transfers", c_uint32),
    ]


class Range(Structure):
    _fields_ = [("arena", c_void_p), ("offset", c_uint64), ("length", c_uint64)]


class StridedRange(Structure):
    _fields_ = [
        ("arena", c_void_p),
        ("offset", c_uint64),
        ("block_bytes", c_uint64),
        ("stride_bytes", c_uint64),
        ("count", c_uint64),
    ]


class BlockTable(Structure):
    _fields_ = [
        ("arena", c_void_p),
        ("offset", c_uint64),
        ("block_bytes", c_uint64),
        ("indices", c_void_p),
        ("index_count", c_size_t),
    ]


class Transfer(Structure):
    _fields_ = [
        ("remote_device", c_uint64),
        ("key", c_void_p),
        ("key_bytes", c_size_t),
        ("ranges", c_void_p),
        ("range_count", c_size_t),
        ("strided", c_void_p),
        ("blocks", c_void_p),
        ("data_type", c_int),
        ("dims", c_void_p),
        ("dim_count", c_size_t),
        ("has_defined_at", c_int),
        ("defined_timeline", c_uint32),
        ("defined_value", c_uint64),
        ("deadline_ns", c_uint64),
    ]


class PostOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("domain", c_void_p),
        ("domain_bytes", c_size_t),
        ("over_timeline", c_uint32),
        ("deadline_ns", c_uint64),
        ("priority", c_int32),
        ("route", c_int),
        ("request_id", c_void_p),
        ("request_id_bytes", c_size_t),
        ("continues", c_uint64),
    ]


ROUTES = ("any", "local", "mapped", "ucx", "nccl", "tcp")

_HANDLE = c_void_p
_STATUS = c_void_p
_OUT = POINTER(c_void_p)
_POST = [_HANDLE, c_uint64, c_void_p, c_size_t, POINTER(PostOptions), _OUT]

# name: (what it returns, its arguments)
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "ferry_version": (c_char_p, []),
    "ferry_status_code": (c_int, [_STATUS]),
    "ferry_status_reason": (c_char_p, [_STATUS]),
    "ferry_status_message": (c_char_p, [_STATUS]),
    "ferry_status_violations": (c_size_t, [_STATUS]),
    "ferry_status_violation_field": (c_char_p, [_STATUS, c_size_t]),
    "ferry_status_violation_text": (c_char_p, [_STATUS, c_size_t]),
    "ferry_status_retry_after_ns": (c_uint64, [_STATUS]),
    "ferry_status_free": (None, [_STATUS]),
    "ferry_session_open": (_STATUS, [POINTER(SessionOptions), _OUT]),
    "ferry_session_close": (None, [_HANDLE]),
    "ferry_session_health": (_STATUS, [_HANDLE]),
    "ferry_session_wait": (_STATUS, [_HANDLE, c_uint64]),
    "ferry_session_id": (c_uint64, [_HANDLE]),
    "ferry_session_node": (c_char_p, [_HANDLE]),
    "ferry_session_devices": (c_size_t, [_HANDLE]),
    "ferry_session_device": (Device, [_HANDLE, c_size_t]),
    "ferry_session_limits": (Limits, [_HANDLE]),
    "ferry_domain_join": (_STATUS, [_HANDLE, c_char_p, c_size_t, c_uint64, c_char_p]),
    "ferry_cluster_devices": (_STATUS, [_HANDLE, _OUT]),
    "ferry_device_list_size": (c_size_t, [_HANDLE]),
    "ferry_device_list_at": (ClusterDevice, [_HANDLE, c_size_t]),
    "ferry_device_list_free": (None, [_HANDLE]),
    "ferry_arena_create": (_STATUS, [_HANDLE, c_uint64, c_uint64, c_uint, _OUT]),
    "ferry_arena_data": (c_void_p, [_HANDLE]),
    "ferry_arena_write": (_STATUS, [_HANDLE, c_uint64, c_void_p, c_uint64]),
    "ferry_arena_read": (_STATUS, [_HANDLE, c_uint64, c_void_p, c_uint64]),
    "ferry_arena_free": (None, [_HANDLE]),
    "ferry_cross_host_send": (_STATUS, _POST),
    "ferry_cross_host_receive": (_STATUS, _POST),
    "ferry_batch_size": (c_size_t, [_HANDLE]),
    "ferry_batch_first_id": (c_uint64, [_HANDLE]),
    "ferry_batch_timeline": (c_uint32, [_HANDLE]),
    "ferry_batch_first_value": (c_uint64, [_HANDLE]),
    "ferry_over_value": (c_uint64, [_HANDLE, c_uint32]),
    "ferry_batch_wait": (_STATUS, [_HANDLE, c_uint64]),
    "ferry_batch_over": (c_int, [_HANDLE]),
    "ferry_over_failures": (None, [_HANDLE, c_uint32, POINTER(c_uint64), POINTER(c_uint64)]),
    "ferry_wait_any": (_STATUS, [c_void_p, c_size_t, c_uint64, POINTER(c_size_t)]),
    "ferry_batch_transfer_status": (_STATUS, [_HANDLE, c_size_t]),
    "ferry_transfer_route": (c_int, [_HANDLE, c_uint64]),
    "ferry_batch_routes": (_STATUS, [_HANDLE, POINTER(c_int)]),
    "ferry_batch_cancel": (_STATUS, [_HANDLE]),
    "ferry_batch_poison": (_STATUS, [_HANDLE, c_char_p]),
    "ferry_batch_on_over": (_STATUS, [_HANDLE, c_void_p, c_void_p]),
    "ferry_batch_free": (None, [_HANDLE]),
    "ferry_prepare_send": (_STATUS, _POST),
    "ferry_prepare_receive": (_STATUS, _POST),
    "ferry_prepared_fire": (_STATUS, [_HANDLE, POINTER(c_uint64)]),
    "ferry_prepared_wait": (_STATUS, [_HANDLE, c_uint64, c_uint64]),
    "ferry_prepared_first_id": (c_uint64, [_HANDLE]),
    "ferry_prepared_fired": (c_uint64, [_HANDLE]),
    "ferry_prepared_over": (c_uint64, [_HANDLE]),
    "ferry_prepared_status": (_STATUS, [_HANDLE]),
    "ferry_prepared_ended": (c_int, [_HANDLE]),
    "ferry_prepared_release": (_STATUS, [_HANDLE]),
    "ferry_prepared_free": (None, [_HANDLE]),
    "ferry_arena_cuda_device": (c_int, [_HANDLE]),
    "ferry_arena_device": (c_uint64, [_HANDLE]),
    "ferry_arena_bytes": (c_uint64, [_HANDLE]),
    "ferry_arena_memory": (c_int, [_HANDLE]),
    "ferry_arena_import_cuda": (_STATUS, [_HANDLE, c_uint64, c_void_p, c_uint64, _OUT]),
    "ferry_stream_define": (_STATUS, [_HANDLE, c_void_p, c_uint32, c_uint64]),
    "ferry_stream_wait_batch": (_STATUS, [_HANDLE, c_void_p]),
    "ferry_stream_fire": (_STATUS, [_HANDLE, c_void_p, POINTER(c_uint64)]),
    "ferry_stream_wait_prepared": (_STATUS, [_HANDLE, c_void_p, c_uint64]),
    "ferry_cuda_malloc": (c_void_p, [c_ssize_t, c_int, c_void_p]),
    "ferry_cuda_free": (None, [c_void_p, c_ssize_t, c_int, c_void_p]),
    "ferry_cuda_malloc_status": (_STATUS, []),
    "ferry_cuda_session": (_STATUS, [_OUT]),
    "ferry_cuda_arena": (c_void_p, [c_void_p, POINTER(c_uint64)]),
}

_library: Optional[Any] = None


def library_path() -> str:
    named = os.environ.get("FERRY_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "libferry.so")
    return beside if os.path.exists(beside) else "libferry.so.0"


def library() -> Any:
    """The opened library. ImportError if it is not there, lacks a function, or is of another version."""
    global _library
    if _library is not None:
        return _library
    path = library_path()
    try:
        opened = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot open libferry at {path}: {error}; install the wheel ferry-transfer, or name the library in FERRY_LIBRARY"
        ) from None
    for name, (result, arguments) in _PROTOTYPES.items():
        try:
            function = getattr(opened, name)
        except AttributeError:
            raise ImportError(f"libferry at {path} has no {name}; it is older than ferry {__version__}") from None
        function.restype = result
        function.argtypes = arguments
    version = opened.ferry_version().decode()
    if version != __version__:
        raise ImportError(
            f"libferry at {path} is version {version}, the Python package is {__version__}: install them from one build"
        )
    _library = opened
    return opened
