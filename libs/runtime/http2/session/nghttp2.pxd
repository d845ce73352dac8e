# SPDX-License-Identifier: Apache-2.0
# The part of libnghttp2's interface (soname 14) that `session_cy` uses. Its functions are found when the module is
# imported, so no header and no library is needed to compile. Source: nghttp2.h of nghttp2 1.70.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef enum:
    ERR_WOULDBLOCK = -504
    ERR_DEFERRED = -508
    ERR_STREAM_ID_NOT_AVAILABLE = -509
    ERR_STREAM_CLOSED = -510
    ERR_STREAM_CLOSING = -511
    ERR_STREAM_SHUT_WR = -512
    ERR_INVALID_STREAM_ID = -513
    ERR_TEMPORAL_CALLBACK_FAILURE = -521
    ERR_DATA_EXIST = -529
    ERR_SESSION_CLOSING = -530
    ERR_NOMEM = -901
    ERR_CALLBACK_FAILURE = -902
    ERR_BAD_CLIENT_MAGIC = -903
    ERR_FLOODED = -904
    ERR_TOO_MANY_CONTINUATIONS = -905

    FRAME_DATA = 0
    FRAME_HEADERS = 1
    FRAME_RST_STREAM = 3
    FRAME_GOAWAY = 7
    FRAME_ALTSVC = 0x0A
    FRAME_ORIGIN = 0x0C
    FRAME_PRIORITY_UPDATE = 0x10

    FLAG_NONE = 0
    FLAG_END_STREAM = 1
    HCAT_REQUEST = 0
    INTERNAL_ERROR = 2

    NV_FLAG_NONE = 0
    DATA_FLAG_EOF = 1
    DATA_FLAG_NO_END_STREAM = 2
    DATA_FLAG_NO_COPY = 4

    SETTINGS_MAX_CONCURRENT_STREAMS = 3
    SETTINGS_INITIAL_WINDOW_SIZE = 4
    SETTINGS_MAX_FRAME_SIZE = 5
    SETTINGS_MAX_HEADER_LIST_SIZE = 6

# Of opaque types only pointers are used.
ctypedef void nghttp2_session
ctypedef void nghttp2_callbacks
ctypedef void nghttp2_option

ctypedef struct nghttp2_nv:
    uint8_t *name
    uint8_t *value
    size_t name_size
    size_t value_size
    uint8_t flags

ctypedef struct nghttp2_settings_entry:
    int32_t settings_id
    uint32_t value

ctypedef struct nghttp2_frame_hd:
    size_t length
    int32_t stream_id
    uint8_t type
    uint8_t flags
    uint8_t reserved

ctypedef struct nghttp2_priority_spec:
    int32_t stream_id
    int32_t weight
    uint8_t exclusive

# A frame is the union of the structs below; each begins with the head of the frame.
ctypedef struct nghttp2_headers:
    nghttp2_frame_hd hd
    size_t padlen
    nghttp2_priority_spec pri_spec
    nghttp2_nv *nva
    size_t nvlen
    int cat

ctypedef struct nghttp2_rst_stream:
    nghttp2_frame_hd hd
    uint32_t error_code

ctypedef struct nghttp2_goaway:
    nghttp2_frame_hd hd
    int32_t last_stream_id
    uint32_t error_code

# The union of the source is as large as a pointer.
ctypedef Py_ssize_t (*nghttp2_read_callback)(
    nghttp2_session *, int32_t, uint8_t *, size_t, uint32_t *, void **, void *) noexcept

ctypedef struct nghttp2_data_provider:
    void *source
    nghttp2_read_callback read_callback

ctypedef int (*nghttp2_frame_callback)(nghttp2_session *, const nghttp2_frame_hd *, void *) noexcept
ctypedef int (*nghttp2_header_callback)(
    nghttp2_session *, const nghttp2_frame_hd *, const uint8_t *, size_t, const uint8_t *, size_t, uint8_t, void *
) noexcept
ctypedef int (*nghttp2_data_callback)(
    nghttp2_session *, uint8_t, int32_t, const uint8_t *, size_t, void *) noexcept
ctypedef int (*nghttp2_close_callback)(nghttp2_session *, int32_t, uint32_t, void *) noexcept
ctypedef int (*nghttp2_not_sent_callback)(nghttp2_session *, const nghttp2_frame_hd *, int, void *) noexcept
ctypedef int (*nghttp2_send_data_callback)(
    nghttp2_session *, nghttp2_frame_hd *, const uint8_t *, size_t, void **, void *) noexcept
ctypedef void (*nghttp2_random_callback)(uint8_t *, size_t) noexcept

cdef struct Library:
    int (*callbacks_new)(nghttp2_callbacks **) noexcept
    void (*callbacks_del)(nghttp2_callbacks *) noexcept
    void (*set_begin_headers)(nghttp2_callbacks *, nghttp2_frame_callback) noexcept
    void (*set_header)(nghttp2_callbacks *, nghttp2_header_callback) noexcept
    void (*set_invalid_header)(nghttp2_callbacks *, nghttp2_header_callback) noexcept
    void (*set_data)(nghttp2_callbacks *, nghttp2_data_callback) noexcept
    void (*set_frame)(nghttp2_callbacks *, nghttp2_frame_callback) noexcept
    void (*set_close)(nghttp2_callbacks *, nghttp2_close_callback) noexcept
    void (*set_not_sent)(nghttp2_callbacks *, nghttp2_not_sent_callback) noexcept
    void (*set_sent)(nghttp2_callbacks *, nghttp2_frame_callback) noexcept
    void (*set_send_data)(nghttp2_callbacks *, nghttp2_send_data_callback) noexcept
    void (*set_random)(nghttp2_callbacks *, nghttp2_random_callback) noexcept
    int (*option_new)(nghttp2_option **) noexcept
    void (*option_del)(nghttp2_option *) noexcept
    void (*option_no_auto_window_update)(nghttp2_option *, int) noexcept
    void (*option_stream_reset_rate_limit)(nghttp2_option *, uint64_t, uint64_t) noexcept
    void (*option_glitch_rate_limit)(nghttp2_option *, uint64_t, uint64_t) noexcept
    void (*option_max_continuations)(nghttp2_option *, size_t) noexcept
    void (*option_max_settings)(nghttp2_option *, size_t) noexcept
    void (*option_max_outbound_ack)(nghttp2_option *, size_t) noexcept
    void (*option_max_send_header_block_length)(nghttp2_option *, size_t) noexcept
    void (*option_builtin_recv_extension_type)(nghttp2_option *, uint8_t) noexcept
    int (*server_new)(nghttp2_session **, const nghttp2_callbacks *, void *, const nghttp2_option *) noexcept
    void (*session_del)(nghttp2_session *) noexcept
    Py_ssize_t (*mem_recv)(nghttp2_session *, const uint8_t *, size_t) noexcept
    Py_ssize_t (*mem_send)(nghttp2_session *, const uint8_t **) noexcept
    int (*want_read)(nghttp2_session *) noexcept
    int (*want_write)(nghttp2_session *) noexcept
    int (*resume_data)(nghttp2_session *, int32_t) noexcept
    int (*consume)(nghttp2_session *, int32_t, size_t) noexcept
    int (*consume_connection)(nghttp2_session *, size_t) noexcept
    int32_t (*last_stream_id)(nghttp2_session *) noexcept
    int (*set_local_window_size)(nghttp2_session *, uint8_t, int32_t, int32_t) noexcept
    void *(*get_stream_user_data)(nghttp2_session *, int32_t) noexcept
    int (*set_stream_user_data)(nghttp2_session *, int32_t, void *) noexcept
    int (*submit_settings)(nghttp2_session *, uint8_t, const nghttp2_settings_entry *, size_t) noexcept
    int (*submit_response)(
        nghttp2_session *, int32_t, const nghttp2_nv *, size_t, const nghttp2_data_provider *) noexcept
    int (*submit_trailer)(nghttp2_session *, int32_t, const nghttp2_nv *, size_t) noexcept
    int (*submit_rst_stream)(nghttp2_session *, uint8_t, int32_t, uint32_t) noexcept
    int (*submit_ping)(nghttp2_session *, uint8_t, const uint8_t *) noexcept
    int (*submit_goaway)(nghttp2_session *, uint8_t, int32_t, uint32_t, const uint8_t *, size_t) noexcept
    int (*submit_shutdown_notice)(nghttp2_session *) noexcept
    const char *(*strerror)(int) noexcept
    int (*is_fatal)(int) noexcept
