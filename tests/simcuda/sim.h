/*
 * Inside of simcuda: the types and calls that its files share. What simcuda is, its environment and
 * its limits stand at the head of simcuda.c.
 *
 * Rules
 * - Only the public cu* functions are exported. Inside, files call sim_* functions, never a public
 *   one: an interposer may sit in front of it.
 * - A public function begins with SIM_ENTER(api), which judges the state of the process and counts
 *   the call for SIMCUDA_FAIL. The forms of one API (_v2, _ptds, _ptsz) count together.
 * - Every public function is also named in SIM_ENTRY, which gives cuGetProcAddress a name for it
 *   that nobody can interpose.
 *
 * Lock order: the list of contexts, exec->lock, ctx->lock, capture lock, stream->lock, event->lock,
 * va lock, state lock, rm_lock (rm.c), stop_lock (groups.c). No lock is held while an operation
 * runs, and none while a thread waits for one, but for the list of contexts while one of them ends,
 * and exec->lock while a queue is full.
 */
#ifndef GM_SIMCUDA_SIM_H
#define GM_SIMCUDA_SIM_H

#define __CUDA_API_VERSION_INTERNAL /* cuda.h declares every exported form */
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_DEVICES_MAX 8
#define SIM_GRANULARITY (2ull << 20) /* of VMM handles and reservations */
#define SIM_PARAMS_MAX 4096          /* bytes of the largest kernel parameter block */

#define SIM_API __attribute__((visibility("default")))
#define SIM_ENTRY(symbol)                                                                          \
    extern __typeof__(symbol) sim_entry_##symbol                                                   \
        __attribute__((alias(#symbol), visibility("hidden")))

/* Two exported forms of one call; in `call`, `mode` says which. */
#define SIM_TWO(legacy, per_thread, params, call)                                                  \
    SIM_API CUresult legacy params                                                                 \
    {                                                                                              \
        const enum sim_mode mode = SIM_LEGACY;                                                     \
        return call;                                                                               \
    }                                                                                              \
    SIM_API CUresult per_thread params                                                             \
    {                                                                                              \
        const enum sim_mode mode = SIM_PER_THREAD;                                                 \
        return call;                                                                               \
    }                                                                                              \
    SIM_ENTRY(legacy);                                                                             \
    SIM_ENTRY(per_thread)

/* What a NULL stream means in this form of a call. */
enum sim_mode { SIM_LEGACY, SIM_PER_THREAD };

/* ---- simcuda.c: options, the state of the process, faults ---- */

struct sim_options {
    uint64_t memory[SIM_DEVICES_MAX]; /* bytes, by ordinal */
    int number[SIM_DEVICES_MAX];      /* of the devices that this process sees, by ordinal */
    uint64_t context_memory;          /* bytes that a context takes */
    uint64_t copy_rate;               /* bytes a second of each copy engine; 0: unthrottled */
    uint64_t launch_ns;               /* least time of a kernel */
    uint64_t compute_mode;            /* a CUcomputemode, which only the attribute says */
    int devices;
    bool has_no_vmm, has_no_fds, has_no_host_numa; /* what the devices cannot do */
    bool has_no_channels;                          /* no context has channels of its own */
    bool has_mps;                                  /* the process is a client of an MPS server */
    double mps_percent;                            /* ... with so many of the multiprocessors */
    uint32_t disable_status, timeslice_status;     /* of the controls; not 0: refused */
    bool has_idle_disable, has_idle_timeslice;     /* accepted, and nothing happens */
    char dir[512];     /* of the shared device state, as an absolute path */
    uint64_t dir_hash; /* of that path: part of uuids and of the names of memfds */
};
extern struct sim_options sim_options;

/* Judge and count a call of `api`. Not CUDA_SUCCESS: return it to the caller at once. */
CUresult sim_enter(const char *api);
#define SIM_ENTER(api)                                                                             \
    do {                                                                                           \
        const CUresult entered_ = sim_enter(#api);                                                 \
        if (entered_ != CUDA_SUCCESS)                                                              \
            return entered_;                                                                       \
    } while (0)

/* As SIM_ENTER, for what is refused beside a capture, and ends it. */
#define SIM_ENTER_UNSAFE(api)                                                                      \
    SIM_ENTER(api);                                                                                \
    do {                                                                                           \
        const CUresult unsafe_ = sim_capture_unsafe();                                             \
        if (unsafe_ != CUDA_SUCCESS)                                                               \
            return unsafe_;                                                                        \
    } while (0)

/* watch.c: tell whoever watches of a call of `api`; load the library that the environment injects.
 */
void sim_watch(const char *api);
void sim_inject(void);

/* Whether this is the child of a process that had initialized CUDA. */
bool sim_is_forked(void);

/* Mark this thread as being in a host callback, where CUDA calls are not permitted. */
void sim_set_callback(bool is_inside);

uint64_t sim_now(void); /* monotonic nanoseconds, the same clock in every process */
void sim_sleep_until(uint64_t ns);
uint64_t sim_hash(const void *bytes, size_t n, uint64_t seed);
void *sim_alloc(size_t bytes); /* zeroed; aborts the process when there is no memory */
void *sim_grow(void *array, size_t bytes);

/* ---- mps.c ---- */

/* Become a client of the MPS that the environment names; MPS_CONNECTION_FAILED. */
CUresult sim_mps_join(void);

/* ---- state.c: what processes share about each device ---- */

/* Open the state of every device and take a place in it. */
CUresult sim_state_open(void);
/* Count bytes of this process on a device; CUDA_ERROR_OUT_OF_MEMORY when they do not fit. */
CUresult sim_memory_take(int device, uint64_t bytes);
void sim_memory_give(int device, uint64_t bytes);
/* What this process has counted so, and the frames that it made. */
void sim_memory_own(int device, uint64_t *bytes, uint64_t *frames);
/* A new frame (the memory of a VMM handle), held by this process. *id is never 0. */
CUresult sim_frame_add(int device, uint64_t bytes, uint64_t *id);
/* This process holds a frame too; it is counted again should it have been forgotten. */
void sim_frame_hold(int device, uint64_t id, uint64_t bytes);
/* This process holds it no more. Freed if nobody does and no exported fd is left anywhere. */
void sim_frame_drop(int device, uint64_t id);
void sim_frame_exported(int device, uint64_t id);
/* An id for host memory, which is not counted. */
uint64_t sim_frame_number(void);
void sim_memory_info(int device, uint64_t *free_bytes, uint64_t *total);
/* Book `bytes` on a copy engine (0: to the device, 1: from it). Returns when they will be through.
 */
uint64_t sim_engine_book(int device, int engine, uint64_t bytes);
/* So many bytes cross the link, in the direction of that copy engine. */
void sim_link_count(int device, int engine, uint64_t bytes);

/* ---- ranges: memory.c and vmm.c ---- */

enum sim_range_kind {
    SIM_RANGE_LINEAR,     /* cuMemAlloc */
    SIM_RANGE_GLOBAL,     /* a variable of a module */
    SIM_RANGE_HOST,       /* cuMemHostAlloc */
    SIM_RANGE_REGISTERED, /* cuMemHostRegister */
    SIM_RANGE_POOL,       /* cuMemAllocAsync */
    SIM_RANGE_MAPPED,     /* cuMemMap */
    SIM_RANGE_MANAGED,    /* cuMemAllocManaged */
    SIM_RANGE_OPENED      /* cuIpcOpenMemHandle */
};

struct sim_op;
struct sim_handle;  /* vmm.c */
struct sim_pool;    /* pools.c */
struct sim_managed; /* managed.c */

struct sim_range {
    uint64_t start, size;
    enum sim_range_kind kind;
    unsigned flags;        /* of host memory */
    int device;            /* where it is; -1: host */
    int counted_device;    /* LINEAR: whose memory it is counted in */
    uint64_t counted;      /* LINEAR: bytes counted */
    struct sim_pool *pool; /* POOL: as LINEAR, but of a pool, not of a context */
    bool is_graph;         /* POOL: allocated by a graph */
    bool is_leaving;       /* POOL, LINEAR: a free of it is on its way */
    uint64_t id;           /* buffer id */
    struct sim_ctx *ctx;   /* NULL for MAPPED */
    bool is_exported;      /* LINEAR: in a file (ipc.c) */
    uint64_t peer_id;      /* OPENED: buffer id in process `peer_pid` */
    int32_t peer_pid;
    uint32_t opens;                      /* OPENED: how often */
    struct sim_handle *handle;           /* MAPPED */
    struct sim_managed *managed;         /* MANAGED */
    bool is_sync_memops;                 /* as it was set */
    uint8_t access[SIM_DEVICES_MAX + 1]; /* MAPPED: CUmemAccess_flags by device; the last: host */
};

extern pthread_mutex_t sim_va_lock; /* guards the table of ranges */
/* The range that holds `address`, or NULL. The table is valid while the va lock is held. */
struct sim_range *sim_range_find(uint64_t address);
/* Every byte is in some range, which may follow each other, or in one reservation. Takes the va
 * lock. */
bool sim_range_covers(uint64_t address, uint64_t bytes);
/* First range that ends above `address`; index into the table. */
size_t sim_range_index(uint64_t address);
struct sim_range *sim_range_at(size_t index);         /* NULL past the end */
bool sim_range_insert(const struct sim_range *range); /* false: overlaps another */
void sim_range_remove(size_t index, size_t count);
uint64_t sim_range_number(void);                   /* a fresh buffer id */
void sim_memory_free_context(struct sim_ctx *ctx); /* free its linear and host memory */
/* A variable of a module; ends with its context, too. Free: 0 is none. */
CUresult sim_global_new(struct sim_ctx *ctx, uint64_t bytes, CUdeviceptr *at);
void sim_global_free(CUdeviceptr at);
/* Memory of a pool: `pool` and `is_graph` of *range say whose; the rest is filled in. */
CUresult sim_pool_memory_new(struct sim_range *range, int device, size_t bytes);
/* Take the POOL or LINEAR range that starts at `start` out of the table, and its memory. */
bool sim_pool_memory_take(uint64_t start, struct sim_range *range);
/* managed.c and array.c */
void sim_managed_free(const struct sim_range *range); /* it is out of the table */
void sim_array_free_context(const struct sim_ctx *ctx);
/* The reservation around an address; unchanged if there is none. Takes the va lock. */
void sim_reservation(uint64_t address, uint64_t *start, uint64_t *size);
unsigned sim_handle_types(const struct sim_handle *handle);
uint64_t sim_handle_id(const struct sim_handle *handle);

/* ---- ipc.c ---- */

/* A range that is exported goes: so does its file. */
void sim_ipc_forget(const struct sim_range *range);

/* ---- groups.c: operations stop in the middle and go on ---- */

/* What works for a context on one of its channel groups. */
struct sim_group {
    _Atomic bool is_stopped;
    _Atomic uint32_t running;    /* threads between enter and leave that do not stand */
    _Atomic uint64_t stopped_ns; /* in all, without the time since the last stop */
    uint64_t since;              /* of that stop; under stop_lock */
};

extern _Atomic uint32_t sim_stops; /* groups that are stopped now */

/* Around everything that a group works on; waits while the group is stopped. */
void sim_group_enter(struct sim_group *group);
void sim_group_leave(void);
/* Within, often, where the work can be interrupted: stand here while the group is stopped. */
void sim_group_pause(void);
static inline void sim_pause_point(void)
{
    if (atomic_load_explicit(&sim_stops, memory_order_relaxed) > 0)
        sim_group_pause();
}
/* Within: sleep without touching anything. The time goes by while the group is stopped. */
void sim_rest_until(uint64_t ns);
/* Within: the same, but later by the time that the group was stopped, counted from `stopped_ns`. */
void sim_work_until(uint64_t ns, uint64_t stopped_ns);
void sim_group_stop(struct sim_group *group);
void sim_group_await(struct sim_group *group); /* until it stands still or was started again */
void sim_group_start(struct sim_group *group);

/* ---- rm.c: the kernel driver ---- */

int sim_rm_open(void);    /* its open file of this process, or -1 */
void sim_rm_forget(void); /* in a child: the file is the parent's */
/* From now on the channels of a channel group stop and start `group`. */
void sim_rm_bind(uint32_t client, uint32_t handle, struct sim_group *group);

/* ---- channels.c: libcuda's part ---- */

#define SIM_COPY_GROUPS 6

enum { SIM_GROUP_COMPUTE, SIM_GROUP_COPY_IN, SIM_GROUP_COPY_OUT, SIM_GROUPS };

/* Of a context: handles of the kernel driver's objects, 0 when there are none. */
struct sim_channels {
    uint32_t compute, channel[8], object, copy[SIM_COPY_GROUPS];
    struct sim_group group[SIM_GROUPS];
};

void sim_channels_open(void);
void sim_channels_make(struct sim_ctx *ctx); /* under the list lock, as is: */
void sim_channels_free(struct sim_ctx *ctx);
/* The group that an operation of the context runs on. */
struct sim_group *sim_channels_group(struct sim_ctx *ctx, const struct sim_op *op);

/* ---- context.c ---- */

struct sim_ctx {
    uint32_t magic;
    uint64_t id;
    int device;
    unsigned flags;
    unsigned api_version;
    bool is_primary;
    unsigned retains; /* of a primary context; under the context lock of context.c */
    _Atomic bool is_alive;
    _Atomic int error;   /* CUresult: what its work died of, until the context does; 0: nothing */
    uint64_t generation; /* counts the lives of a primary context */
    size_t limit[CU_LIMIT_MAX];
    uint64_t stacks; /* bytes that its limit of the stack takes; under the lock */
    struct sim_ctx *_Atomic peer[SIM_DEVICES_MAX]; /* whose memory it may reach, by device */
    struct sim_channels channels;

    pthread_mutex_t lock;
    struct sim_stream *streams; /* all, the default ones included */
    struct sim_stream *legacy;
    struct sim_ctx *next; /* every context that ever was: handles stay judgeable */
};

/* The current context, alive; CUDA_ERROR_INVALID_CONTEXT, _CONTEXT_IS_DESTROYED, or what its work
 * died of otherwise. */
CUresult sim_ctx_current(struct sim_ctx **ctx);
CUresult sim_ctx_check(CUcontext handle, struct sim_ctx **ctx);
/* Wait for everything submitted so far to all streams of a context. */
void sim_ctx_wait(struct sim_ctx *ctx);
CUresult sim_device_check(CUdevice device);

/* ---- peer.c ---- */

/* Whether a kernel of the context may touch `address`; what is not known memory is for the page
 * tables to judge. */
bool sim_peer_may_touch(const struct sim_ctx *ctx, uint64_t address);

/* ---- stream.c ---- */

/* A place in a stream's order: passed when the stream has done `seq` operations. Holds a reference.
 */
struct sim_point {
    struct sim_stream *stream;
    uint64_t seq;
};

struct sim_stream {
    uint32_t magic;
    _Atomic uint32_t refs;
    struct sim_ctx *ctx;
    uint64_t id;
    unsigned flags;
    int priority;
    bool is_legacy;
    bool is_per_thread;
    struct sim_stream *ctx_next, *ctx_prev;

    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    struct sim_op *head, *tail;
    _Atomic uint64_t submitted, done;
    unsigned waiters;
    bool has_thread;
    bool is_idle; /* the thread waits for work */
    bool is_destroyed;

    /* Under the capture lock (graph.c). */
    struct sim_capture *capture;
    struct sim_node **frontier; /* the nodes that the next one follows */
    size_t n_frontier;
    struct sim_stream *capture_next;
};

enum sim_op_kind {
    SIM_OP_EMPTY,
    SIM_OP_KERNEL,
    SIM_OP_COPY,
    SIM_OP_SET,
    SIM_OP_HOST,
    SIM_OP_CALLBACK,
    SIM_OP_MARK,
    SIM_OP_WRITE,
    SIM_OP_WAIT,
    SIM_OP_GRAPH,
    SIM_OP_FREE,
    SIM_OP_GRAPH_ALLOC,
    SIM_OP_GRAPH_FREE
};

/* When a recorded event was passed. */
struct sim_mark {
    _Atomic uint32_t refs;
    _Atomic uint64_t time; /* 0: not yet */
};

struct sim_copy {
    uint64_t dst, src;
    size_t dst_pitch, src_pitch; /* bytes from row to row */
    size_t dst_slice, src_slice; /* bytes from slice to slice */
    size_t width, height, depth;
    int device;
    int engine;   /* 0: to the device, 1: from it, -1: neither */
    void *staged; /* owned: what `src` held when the copy was submitted */
};

struct sim_op {
    struct sim_op *next;
    enum sim_op_kind kind;
    uint32_t n_deps;
    struct sim_point *deps; /* waited for before it runs; owned */
    union {
        struct {
            const struct sim_kernel *kernel;
            const struct sim_ctx *ctx;
            _Alignas(16) uint8_t params[SIM_PARAMS_MAX];
        } launch;
        struct sim_copy copy;
        struct {
            uint64_t dst;
            size_t pitch, width, height; /* width in elements */
            uint32_t value;
            uint32_t element; /* bytes: 1, 2 or 4 */
        } set;
        struct {
            CUhostFn fn;
            void *data;
        } host;
        struct {
            CUstreamCallback fn;
            void *data;
            CUstream stream;
        } callback;
        struct sim_mark *mark; /* holds a reference */
        struct {
            uint64_t address, value;
            unsigned flags;
            bool is_64;
        } value;
        struct sim_exec *exec;   /* holds a reference */
        uint64_t freed;          /* address of a pool's memory */
        struct sim_block *block; /* graph_memory.c */
    } u;
};

struct sim_op *sim_op_new(enum sim_op_kind kind);
struct sim_op *sim_op_clone(const struct sim_op *op); /* without its dependencies */
void sim_op_free(struct sim_op *op);
void sim_op_run(const struct sim_op *op, struct sim_ctx *ctx); /* for a stream of `ctx` */
/* The operation also waits for `point`; a reference is taken. */
void sim_op_after(struct sim_op *op, struct sim_point point);
/* ... and for all that the streams of a context have been given so far. */
void sim_op_after_context(struct sim_op *op, struct sim_ctx *ctx);

/* The stream that a handle means in this form of a call. No reference is taken. */
CUresult sim_stream_get(CUstream handle, enum sim_mode mode, struct sim_stream **stream);
struct sim_stream *sim_stream_new(struct sim_ctx *ctx, unsigned flags, int priority);
void sim_stream_ref(struct sim_stream *stream);
void sim_stream_unref(struct sim_stream *stream);
void sim_stream_shut(
    struct sim_stream *stream); /* drop its handle; it ends when its work is done */
/*
 * Put an operation at the end of a stream, or into the graph that the stream captures to. Takes the
 * operation in any case. If `point` is not NULL, it gets the operation's place (a reference, which
 * the caller drops), or a NULL stream when captured.
 */
CUresult sim_submit(struct sim_stream *stream, struct sim_op *op, struct sim_point *point);
/* Submit and wait for it. Not allowed on a capturing stream. */
CUresult sim_submit_wait(struct sim_stream *stream, struct sim_op *op);
void sim_point_wait(struct sim_point point);
/* Wait for it and drop its reference: what its context died of, or CUDA_SUCCESS. */
CUresult sim_point_end(struct sim_point point);
bool sim_point_passed(struct sim_point point);

/* ---- event.c ---- */

struct sim_event {
    uint32_t magic;
    unsigned flags;
    struct sim_ctx *ctx;
    pthread_mutex_t lock;
    struct sim_point point; /* NULL stream: never recorded */
    struct sim_mark *mark;
    /* Recorded in a capture (under the capture lock): its id and the nodes that came before. */
    uint64_t capture_id; /* 0: not */
    struct sim_node **frontier;
    size_t n_frontier;
    struct sim_event *prev, *next; /* all that were not destroyed, also of contexts that ended */
};

/* ---- graph.c: capture and replay ---- */

extern _Atomic uint32_t sim_captures; /* open now; 0 makes every check below free */

/* CUDA_SUCCESS and *is_captured, or why this use of the stream is not allowed. Takes the op if so.
 */
CUresult sim_capture_submit(struct sim_stream *stream, struct sim_op *op, bool *is_captured);
CUresult sim_capture_record(struct sim_event *event, struct sim_stream *stream, bool *is_captured);
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event, bool *is_captured);
/* A call that may synchronize ("potentially unsafe"): refused while a capture forbids it. */
CUresult sim_capture_unsafe(void);
/* Synchronizing or querying this stream, this context: a capture in it is spoiled and refuses. */
CUresult sim_capture_sync_stream(struct sim_stream *stream);
/* For what a stream that is captured cannot be asked, whatever the mode. */
CUresult sim_capture_ask_stream(struct sim_stream *stream);
CUresult sim_capture_sync_context(struct sim_ctx *ctx);
CUresult sim_capture_query_event(struct sim_event *event);
void sim_capture_forget(struct sim_stream *stream); /* it is going away */
bool sim_is_capturing(struct sim_stream *stream);
void sim_exec_run(struct sim_exec *exec, struct sim_ctx *ctx);
void sim_exec_ref(struct sim_exec *exec);
void sim_exec_unref(struct sim_exec *exec);
/* graph_memory.c: a launch uses a block from now on; a node freed it. */
CUresult sim_block_use(struct sim_block *block);
void sim_block_unuse(struct sim_block *block);

/* ---- copy.c ---- */

void sim_copy_run(const struct sim_copy *copy);

/* ---- pools.c ---- */

CUmemoryPool sim_pool_handle(struct sim_pool *pool);
/* Begin to free a POOL or LINEAR range; *range is a copy. False: there is none, or it is on its
 * way.
 */
bool sim_pool_begin_free(CUdeviceptr dptr, struct sim_range *range);
/* A POOL range is the program's no more; its memory goes when sim_pool_run_free says so. */
void sim_pool_note_free(const struct sim_range *range);
void sim_pool_run_free(uint64_t address);

/* ---- fault.c ---- */

void sim_fault_open(void); /* by the first cuInit */
/* Do the work. True: it touched memory that is not there, or called sim_fault, and ended there. */
bool sim_fault_ends(void (*work)(const void *argument), const void *argument);
/* Within: end it. Does not return. */
void sim_fault(void) __attribute__((noreturn));

/* ---- kernels.c and module.c ---- */

struct sim_kernel {
    const char *name;
    void (*run)(const uint8_t *params);
    uint32_t n_params;
    struct {
        uint16_t offset, size;
    } param[8]; /* of the parameter block */
};

/* The daemon's kernel, daemon/memory/hash.cu. */
struct gm_hash_launch;
void sim_hash_chunks(const struct gm_hash_launch *launch);
/* What the copy engines do: move bytes, which may overlap, or set `n` elements of so many bytes. */
void sim_engine_move(void *to, const void *from, size_t bytes);
void sim_engine_set(void *p, size_t n, uint32_t element, uint32_t value);

const struct sim_kernel *sim_kernel_find(const char *name, size_t length);
/* Run it on a device. What it touches of memory on the host crosses that device's link. */
void sim_kernel_run(const struct sim_kernel *kernel, const uint8_t *params, int device);
CUresult sim_function_kernel(CUfunction handle, const struct sim_kernel **kernel);

/* ---- proc.c ---- */

bool sim_proc_knows(const char *api);
bool sim_is_without(const char *symbol); /* without.c: SIMCUDA_WITHOUT names it */
/*
 * The symbol for (API, version, flags): NULL, with the reason in *status, when there is none, which
 * is no error.
 */
CUresult sim_proc_find(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status);

#endif
