"""ggml's C interface for ctypes. Generated from its headers by vendor/ggml/bindgen.py: do not edit.

FUNCTIONS: name -> (result, arguments, library). Pointers are addresses, only `const char *` is bytes.
"""

from collections.abc import Mapping
from ctypes import (
    CFUNCTYPE,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint8,
    c_void_p,
)
from enum import IntEnum
from types import MappingProxyType
from typing import Any

VERSION = "0.20.2"
GGML_MAX_DIMS = 4
GGML_MAX_PARAMS = 2048
GGML_MAX_SRC = 10
GGML_MAX_N_THREADS = 512
GGML_MAX_OP_PARAMS = 64
GGML_ROPE_TYPE_NORMAL = 0
GGML_ROPE_TYPE_NEOX = 2
GGML_ROPE_TYPE_MROPE = 8
GGML_ROPE_TYPE_VISION = 24
GGML_ROPE_TYPE_IMROPE = 40
RPC_PROTO_MAJOR_VERSION = 5
RPC_PROTO_MINOR_VERSION = 0
RPC_PROTO_PATCH_VERSION = 0


class Status(IntEnum):
    ALLOC_FAILED = -2
    FAILED = -1
    SUCCESS = 0
    ABORTED = 1


class Type(IntEnum):
    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42
    COUNT = 43


class Prec(IntEnum):
    DEFAULT = 0
    F32 = 10


class OpHint(IntEnum):
    NONE = 0
    SRC0_IS_HADAMARD = 1


class Ftype(IntEnum):
    UNKNOWN = -1
    ALL_F32 = 0
    MOSTLY_F16 = 1
    MOSTLY_Q4_0 = 2
    MOSTLY_Q4_1 = 3
    MOSTLY_Q4_1_SOME_F16 = 4
    MOSTLY_Q8_0 = 7
    MOSTLY_Q5_0 = 8
    MOSTLY_Q5_1 = 9
    MOSTLY_Q2_K = 10
    MOSTLY_Q3_K = 11
    MOSTLY_Q4_K = 12
    MOSTLY_Q5_K = 13
    MOSTLY_Q6_K = 14
    MOSTLY_IQ2_XXS = 15
    MOSTLY_IQ2_XS = 16
    MOSTLY_IQ3_XXS = 17
    MOSTLY_IQ1_S = 18
    MOSTLY_IQ4_NL = 19
    MOSTLY_IQ3_S = 20
    MOSTLY_IQ2_S = 21
    MOSTLY_IQ4_XS = 22
    MOSTLY_IQ1_M = 23
    MOSTLY_BF16 = 24
    MOSTLY_MXFP4 = 25
    MOSTLY_NVFP4 = 26
    MOSTLY_Q1_0 = 27
    MOSTLY_Q2_0 = 28


class Op(IntEnum):
    NONE = 0
    DUP = 1
    ADD = 2
    ADD_ID = 3
    ADD1 = 4
    ACC = 5
    SUB = 6
    MUL = 7
    DIV = 8
    SQR = 9
    SQRT = 10
    LOG = 11
    SIN = 12
    COS = 13
    SUM = 14
    SUM_ROWS = 15
    CUMSUM = 16
    MEAN = 17
    ARGMAX = 18
    COUNT_EQUAL = 19
    REPEAT = 20
    REPEAT_BACK = 21
    CONCAT = 22
    SILU_BACK = 23
    NORM = 24
    RMS_NORM = 25
    RMS_NORM_BACK = 26
    GROUP_NORM = 27
    L2_NORM = 28
    MUL_MAT = 29
    MUL_MAT_ID = 30
    OUT_PROD = 31
    SCALE = 32
    SET = 33
    CPY = 34
    CONT = 35
    RESHAPE = 36
    VIEW = 37
    PERMUTE = 38
    TRANSPOSE = 39
    GET_ROWS = 40
    GET_ROWS_BACK = 41
    SET_ROWS = 42
    DIAG = 43
    DIAG_MASK_INF = 44
    DIAG_MASK_ZERO = 45
    SOFT_MAX = 46
    SOFT_MAX_BACK = 47
    ROPE = 48
    ROPE_BACK = 49
    CLAMP = 50
    CONV_TRANSPOSE_1D = 51
    IM2COL = 52
    IM2COL_BACK = 53
    IM2COL_3D = 54
    COL2IM_1D = 55
    CONV_2D = 56
    CONV_3D = 57
    CONV_2D_DW = 58
    CONV_TRANSPOSE_2D = 59
    POOL_1D = 60
    POOL_2D = 61
    POOL_2D_BACK = 62
    UPSCALE = 63
    PAD = 64
    PAD_REFLECT_1D = 65
    ROLL = 66
    ARANGE = 67
    TIMESTEP_EMBEDDING = 68
    ARGSORT = 69
    TOP_K = 70
    LEAKY_RELU = 71
    TRI = 72
    FILL = 73
    FLASH_ATTN_EXT = 74
    FLASH_ATTN_BACK = 75
    SSM_CONV = 76
    SSM_SCAN = 77
    WIN_PART = 78
    WIN_UNPART = 79
    GET_REL_POS = 80
    ADD_REL_POS = 81
    RWKV_WKV6 = 82
    GATED_LINEAR_ATTN = 83
    RWKV_WKV7 = 84
    SOLVE_TRI = 85
    GATED_DELTA_NET = 86
    LIGHTNING_INDEXER = 87
    DSV4_HC_COMB = 88
    DSV4_HC_PRE = 89
    DSV4_HC_POST = 90
    UNARY = 91
    MAP_CUSTOM1 = 92
    MAP_CUSTOM2 = 93
    MAP_CUSTOM3 = 94
    CUSTOM = 95
    CROSS_ENTROPY_LOSS = 96
    CROSS_ENTROPY_LOSS_BACK = 97
    OPT_STEP_ADAMW = 98
    OPT_STEP_SGD = 99
    GLU = 100
    COUNT = 101


class UnaryOp(IntEnum):
    ABS = 0
    SGN = 1
    NEG = 2
    STEP = 3
    TANH = 4
    ELU = 5
    RELU = 6
    SIGMOID = 7
    GELU = 8
    GELU_QUICK = 9
    SILU = 10
    HARDSWISH = 11
    HARDSIGMOID = 12
    EXP = 13
    EXPM1 = 14
    SOFTPLUS = 15
    GELU_ERF = 16
    XIELU = 17
    FLOOR = 18
    CEIL = 19
    ROUND = 20
    TRUNC = 21
    COUNT = 22


class GluOp(IntEnum):
    REGLU = 0
    GEGLU = 1
    SWIGLU = 2
    SWIGLU_OAI = 3
    GEGLU_ERF = 4
    GEGLU_QUICK = 5
    COUNT = 6


class ObjectType(IntEnum):
    TENSOR = 0
    GRAPH = 1
    WORK_BUFFER = 2


class LogLevel(IntEnum):
    NONE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    CONT = 5


class TensorFlag(IntEnum):
    INPUT = 1
    OUTPUT = 2
    PARAM = 4
    LOSS = 8
    COMPUTE = 16


class TriType(IntEnum):
    UPPER_DIAG = 0
    UPPER = 1
    LOWER_DIAG = 2
    LOWER = 3


class OpPool(IntEnum):
    MAX = 0
    AVG = 1
    COUNT = 2


class ScaleMode(IntEnum):
    NEAREST = 0
    BILINEAR = 1
    BICUBIC = 2
    COUNT = 3


class ScaleFlag(IntEnum):
    ALIGN_CORNERS = 256
    ANTIALIAS = 512


class SortOrder(IntEnum):
    ASC = 0
    DESC = 1


class SchedPriority(IntEnum):
    LOW = -1
    NORMAL = 0
    MEDIUM = 1
    HIGH = 2
    REALTIME = 3


class BackendBufferUsage(IntEnum):
    ANY = 0
    WEIGHTS = 1
    COMPUTE = 2


class BackendDevType(IntEnum):
    CPU = 0
    GPU = 1
    IGPU = 2
    ACCEL = 3
    META = 4


class BackendMetaSplitAxis(IntEnum):
    AXIS_0 = 0
    AXIS_1 = 1
    AXIS_2 = 2
    AXIS_3 = 3
    AXIS_MIRRORED = 10
    AXIS_PARTIAL = 11
    AXIS_NONE = 98
    AXIS_UNKNOWN = 99


class NumaStrategy(IntEnum):
    DISABLED = 0
    DISTRIBUTE = 1
    ISOLATE = 2
    NUMACTL = 3
    MIRROR = 4
    COUNT = 5


class Bf16(Structure):
    _fields_ = [
        ("bits", c_uint16),
    ]


class InitParams(Structure):
    _fields_ = [
        ("mem_size", c_size_t),
        ("mem_buffer", c_void_p),
        ("no_alloc", c_bool),
    ]


class Tensor(Structure):
    _fields_ = [
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", c_char * 64),
        ("extra", c_void_p),
        ("padding", c_char * 8),
    ]


class TypeTraits(Structure):
    _fields_ = [
        ("type_name", c_char_p),
        ("blck_size", c_int64),
        ("blck_size_interleave", c_int64),
        ("type_size", c_size_t),
        ("is_quantized", c_bool),
        ("to_float", c_void_p),
        ("from_float_ref", c_void_p),
    ]


class ThreadpoolParams(Structure):
    _fields_ = [
        ("cpumask", c_bool * 512),
        ("n_threads", c_int),
        ("prio", c_int),
        ("poll", c_uint32),
        ("strict_cpu", c_bool),
        ("paused", c_bool),
    ]


class Tallocr(Structure):
    _fields_ = [
        ("buffer", c_void_p),
        ("base", c_void_p),
        ("alignment", c_size_t),
        ("offset", c_size_t),
    ]


class BackendDevCaps(Structure):
    _fields_ = [
        ("async", c_bool),
        ("host_buffer", c_bool),
        ("buffer_from_host_ptr", c_bool),
        ("events", c_bool),
        ("mmap_support", c_bool),
    ]


class BackendDevProps(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("description", c_char_p),
        ("memory_free", c_size_t),
        ("memory_total", c_size_t),
        ("type", c_int),
        ("device_id", c_char_p),
        ("caps", BackendDevCaps),
    ]


class BackendFeature(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


class BackendMetaSplitState(Structure):
    _fields_ = [
        ("axis", c_int),
        ("ne", c_int64 * 256),
        ("nr", c_uint32 * 16),
        ("n_segments", c_uint32),
    ]


class BackendGraphCopy(Structure):
    _fields_ = [
        ("buffer", c_void_p),
        ("ctx_allocated", c_void_p),
        ("ctx_unallocated", c_void_p),
        ("graph", c_void_p),
    ]


class Cplan(Structure):
    _fields_ = [
        ("work_size", c_size_t),
        ("work_data", c_void_p),
        ("n_threads", c_int),
        ("threadpool", c_void_p),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("use_ref", c_bool),
    ]


class TypeTraitsCpu(Structure):
    _fields_ = [
        ("from_float", c_void_p),
        ("vec_dot", c_void_p),
        ("vec_dot_type", c_int),
        ("nrows", c_int64),
    ]


AbortCallbackT = CFUNCTYPE(None, c_char_p)
AbortCallback = CFUNCTYPE(c_bool, c_void_p)
Custom1Op = CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_int, c_void_p)
Custom2Op = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p)
Custom3Op = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p)
CustomOp = CFUNCTYPE(None, c_void_p, c_int, c_int, c_void_p)
LogCallback = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
ToFloat = CFUNCTYPE(None, c_void_p, c_void_p, c_int64)
FromFloat = CFUNCTYPE(None, c_void_p, c_void_p, c_int64)
BackendCommInit = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
BackendCommFree = CFUNCTYPE(None, c_void_p)
BackendCommAllreduceTensor = CFUNCTYPE(c_bool, c_void_p, c_void_p)
BackendSplitBufferType = CFUNCTYPE(c_void_p, c_int, c_void_p)
BackendSetNThreads = CFUNCTYPE(None, c_void_p, c_int)
BackendDevGetExtraBufts = CFUNCTYPE(c_void_p, c_void_p)
BackendSetAbortCallback = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
BackendGetFeatures = CFUNCTYPE(c_void_p, c_void_p)
BackendSchedEvalCallback = CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)
BackendMetaGetSplitState = CFUNCTYPE(BackendMetaSplitState, c_void_p, c_void_p)
BackendEvalCallback = CFUNCTYPE(c_bool, c_int, c_void_p, c_void_p, c_void_p)
VecDot = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_int)

FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...], str]] = MappingProxyType({
    "ggml_set_abort_callback": (c_void_p, (c_void_p,), "ggml"),
    "ggml_status_to_string": (c_char_p, (c_int,), "ggml"),
    "ggml_fp16_to_fp32": (c_float, (c_uint16,), "ggml"),
    "ggml_fp32_to_fp16": (c_uint16, (c_float,), "ggml"),
    "ggml_fp16_to_fp32_row": (None, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_fp32_to_fp16_row": (None, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_fp32_to_bf16": (Bf16, (c_float,), "ggml"),
    "ggml_bf16_to_fp32": (c_float, (Bf16,), "ggml"),
    "ggml_bf16_to_fp32_row": (None, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_fp32_to_bf16_row_ref": (None, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_fp32_to_bf16_row": (None, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_guid_matches": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_version": (c_char_p, (), "ggml"),
    "ggml_commit": (c_char_p, (), "ggml"),
    "ggml_time_init": (None, (), "ggml"),
    "ggml_time_ms": (c_int64, (), "ggml"),
    "ggml_time_us": (c_int64, (), "ggml"),
    "ggml_cycles": (c_int64, (), "ggml"),
    "ggml_cycles_per_ms": (c_int64, (), "ggml"),
    "ggml_fopen": (c_void_p, (c_char_p, c_char_p,), "ggml"),
    "ggml_print_object": (None, (c_void_p,), "ggml"),
    "ggml_print_objects": (None, (c_void_p,), "ggml"),
    "ggml_nelements": (c_int64, (c_void_p,), "ggml"),
    "ggml_nrows": (c_int64, (c_void_p,), "ggml"),
    "ggml_nbytes": (c_size_t, (c_void_p,), "ggml"),
    "ggml_nbytes_pad": (c_size_t, (c_void_p,), "ggml"),
    "ggml_blck_size": (c_int64, (c_int,), "ggml"),
    "ggml_type_size": (c_size_t, (c_int,), "ggml"),
    "ggml_row_size": (c_size_t, (c_int, c_int64,), "ggml"),
    "ggml_type_sizef": (c_double, (c_int,), "ggml"),
    "ggml_type_name": (c_char_p, (c_int,), "ggml"),
    "ggml_op_name": (c_char_p, (c_int,), "ggml"),
    "ggml_op_symbol": (c_char_p, (c_int,), "ggml"),
    "ggml_unary_op_name": (c_char_p, (c_int,), "ggml"),
    "ggml_glu_op_name": (c_char_p, (c_int,), "ggml"),
    "ggml_op_desc": (c_char_p, (c_void_p,), "ggml"),
    "ggml_element_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_is_quantized": (c_bool, (c_int,), "ggml"),
    "ggml_ftype_to_ggml_type": (c_int, (c_int,), "ggml"),
    "ggml_is_transposed": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_permuted": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_empty": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_view": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_scalar": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_vector": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_matrix": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_3d": (c_bool, (c_void_p,), "ggml"),
    "ggml_n_dims": (c_int, (c_void_p,), "ggml"),
    "ggml_is_contiguous": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_0": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_1": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_2": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_to_1": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_to_2": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_to_3": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguously_allocated": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_channels": (c_bool, (c_void_p,), "ggml"),
    "ggml_is_contiguous_rows": (c_bool, (c_void_p,), "ggml"),
    "ggml_are_same_shape": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_are_same_stride": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_can_repeat": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_tensor_overhead": (c_size_t, (), "ggml"),
    "ggml_validate_row_data": (c_bool, (c_int, c_void_p, c_size_t,), "ggml"),
    "ggml_init": (c_void_p, (InitParams,), "ggml"),
    "ggml_reset": (None, (c_void_p,), "ggml"),
    "ggml_free": (None, (c_void_p,), "ggml"),
    "ggml_used_mem": (c_size_t, (c_void_p,), "ggml"),
    "ggml_get_no_alloc": (c_bool, (c_void_p,), "ggml"),
    "ggml_set_no_alloc": (None, (c_void_p, c_bool,), "ggml"),
    "ggml_get_mem_buffer": (c_void_p, (c_void_p,), "ggml"),
    "ggml_get_mem_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_get_max_tensor_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_new_tensor": (c_void_p, (c_void_p, c_int, c_int, c_void_p,), "ggml"),
    "ggml_new_tensor_1d": (c_void_p, (c_void_p, c_int, c_int64,), "ggml"),
    "ggml_new_tensor_2d": (c_void_p, (c_void_p, c_int, c_int64, c_int64,), "ggml"),
    "ggml_new_tensor_3d": (c_void_p, (c_void_p, c_int, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_new_tensor_4d": (c_void_p, (c_void_p, c_int, c_int64, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_new_buffer": (c_void_p, (c_void_p, c_size_t,), "ggml"),
    "ggml_dup_tensor": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_view_tensor": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_get_first_tensor": (c_void_p, (c_void_p,), "ggml"),
    "ggml_get_next_tensor": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_get_tensor": (c_void_p, (c_void_p, c_char_p,), "ggml"),
    "ggml_unravel_index": (None, (c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_get_unary_op": (c_int, (c_void_p,), "ggml"),
    "ggml_get_glu_op": (c_int, (c_void_p,), "ggml"),
    "ggml_get_data": (c_void_p, (c_void_p,), "ggml"),
    "ggml_get_data_f32": (c_void_p, (c_void_p,), "ggml"),
    "ggml_get_name": (c_char_p, (c_void_p,), "ggml"),
    "ggml_set_name": (c_void_p, (c_void_p, c_char_p,), "ggml"),
    "ggml_set_input": (None, (c_void_p,), "ggml"),
    "ggml_set_output": (None, (c_void_p,), "ggml"),
    "ggml_set_param": (None, (c_void_p,), "ggml"),
    "ggml_set_loss": (None, (c_void_p,), "ggml"),
    "ggml_dup": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_dup_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_add": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_add_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_add_cast": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_add_id": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_add1": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_add1_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_acc": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_acc_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_sub": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_sub_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_mul": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_mul_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_div": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_div_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_sqr": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sqr_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sqrt": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sqrt_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_log": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_log_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_expm1": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_expm1_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_softplus": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_softplus_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sin": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sin_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_cos": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_cos_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sum": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sum_rows": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_cumsum": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_mean": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_argmax": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_count_equal": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_repeat": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_repeat_4d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_repeat_back": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_concat": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_abs": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_abs_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sgn": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sgn_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_neg": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_neg_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_step": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_step_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_tanh": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_tanh_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_elu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_elu_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_relu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_leaky_relu": (c_void_p, (c_void_p, c_void_p, c_float, c_bool,), "ggml"),
    "ggml_relu_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sigmoid": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_sigmoid_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_gelu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_gelu_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_gelu_erf": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_gelu_erf_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_gelu_quick": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_gelu_quick_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_silu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_silu_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_silu_back": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_hardswish": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_hardsigmoid": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_exp": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_exp_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_floor": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_floor_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_ceil": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_ceil_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_round": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_round_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_trunc": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_trunc_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_xielu": (c_void_p, (c_void_p, c_void_p, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_glu": (c_void_p, (c_void_p, c_void_p, c_int, c_bool,), "ggml"),
    "ggml_reglu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_reglu_swapped": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_geglu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_swapped": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_swiglu": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_swiglu_swapped": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_erf": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_erf_swapped": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_quick": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_quick_swapped": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_glu_split": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_reglu_split": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_split": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_swiglu_split": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_erf_split": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_geglu_quick_split": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_swiglu_oai": (c_void_p, (c_void_p, c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_norm": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_norm_inplace": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_rms_norm": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_rms_norm_inplace": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_group_norm": (c_void_p, (c_void_p, c_void_p, c_int, c_float,), "ggml"),
    "ggml_group_norm_inplace": (c_void_p, (c_void_p, c_void_p, c_int, c_float,), "ggml"),
    "ggml_l2_norm": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_l2_norm_inplace": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_rms_norm_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_mul_mat": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_mul_mat_set_prec": (None, (c_void_p, c_int,), "ggml"),
    "ggml_mul_mat_set_hint": (None, (c_void_p, c_int,), "ggml"),
    "ggml_mul_mat_id": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_out_prod": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_scale": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_scale_inplace": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_scale_bias": (c_void_p, (c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_scale_bias_inplace": (c_void_p, (c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_set": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_set_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_set_1d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t,), "ggml"),
    "ggml_set_1d_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t,), "ggml"),
    "ggml_set_2d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_set_2d_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_cpy": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_cast": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_cont": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_cont_1d": (c_void_p, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_cont_2d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64,), "ggml"),
    "ggml_cont_3d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_cont_4d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_reshape": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_reshape_1d": (c_void_p, (c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_reshape_2d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64,), "ggml"),
    "ggml_reshape_3d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_reshape_4d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64,), "ggml"),
    "ggml_view_1d": (c_void_p, (c_void_p, c_void_p, c_int64, c_size_t,), "ggml"),
    "ggml_view_2d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_size_t, c_size_t,), "ggml"),
    "ggml_view_3d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_view_4d": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_permute": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_transpose": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_get_rows": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_get_rows_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_set_rows": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_diag": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_diag_mask_inf": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_diag_mask_inf_inplace": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_diag_mask_zero": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_diag_mask_zero_inplace": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_soft_max": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_soft_max_inplace": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_soft_max_ext": (c_void_p, (c_void_p, c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_soft_max_ext_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_soft_max_add_sinks": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_soft_max_ext_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_soft_max_ext_back_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_rope": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_rope_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_rope_ext": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_multi": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int * 4, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_ext_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_multi_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int * 4, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_custom": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_custom_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_yarn_corr_dims": (None, (c_int, c_int, c_float, c_float, c_float, c_float * 2,), "ggml"),
    "ggml_rope_ext_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_rope_multi_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int * 4, c_int, c_int, c_float, c_float, c_float, c_float, c_float, c_float,), "ggml"),
    "ggml_clamp": (c_void_p, (c_void_p, c_void_p, c_float, c_float,), "ggml"),
    "ggml_im2col": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_bool, c_int,), "ggml"),
    "ggml_im2col_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_bool,), "ggml"),
    "ggml_col2im_1d": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_1d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_1d_ph": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_conv_1d_dw": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_1d_dw_ph": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_conv_transpose_1d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_2d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_im2col_3d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_3d": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_2d_sk_p0": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_conv_2d_s1_ph": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_conv_2d_dw": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_2d_dw_direct": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_transpose_2d_p0": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_conv_2d_direct": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_conv_3d_direct": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_pool_1d": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_pool_2d": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_float, c_float,), "ggml"),
    "ggml_pool_2d_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_float, c_float,), "ggml"),
    "ggml_upscale": (c_void_p, (c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_upscale_ext": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_interpolate": (c_void_p, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64, c_uint32,), "ggml"),
    "ggml_pad": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_pad_circular": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_pad_ext": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_pad_ext_circular": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_pad_reflect_1d": (c_void_p, (c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_roll": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int,), "ggml"),
    "ggml_tri": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_fill": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_fill_inplace": (c_void_p, (c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_timestep_embedding": (c_void_p, (c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_argsort": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_argsort_top_k": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_top_k": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_arange": (c_void_p, (c_void_p, c_float, c_float, c_float,), "ggml"),
    "ggml_flash_attn_ext": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_float, c_float, c_float,), "ggml"),
    "ggml_flash_attn_ext_set_prec": (None, (c_void_p, c_int,), "ggml"),
    "ggml_flash_attn_ext_get_prec": (c_int, (c_void_p,), "ggml"),
    "ggml_flash_attn_ext_add_sinks": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_flash_attn_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_bool,), "ggml"),
    "ggml_ssm_conv": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_ssm_scan": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_win_part": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_win_unpart": (c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int,), "ggml"),
    "ggml_unary": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_unary_inplace": (c_void_p, (c_void_p, c_void_p, c_int,), "ggml"),
    "ggml_get_rel_pos": (c_void_p, (c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_add_rel_pos": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_add_rel_pos_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_rwkv_wkv6": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_gated_linear_attn": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_float,), "ggml"),
    "ggml_rwkv_wkv7": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_solve_tri": (c_void_p, (c_void_p, c_void_p, c_void_p, c_bool, c_bool, c_bool,), "ggml"),
    "ggml_gated_delta_net": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64,), "ggml"),
    "ggml_lightning_indexer": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_dsv4_hc_comb": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_float, c_int32,), "ggml"),
    "ggml_dsv4_hc_pre": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_dsv4_hc_post": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_map_custom1": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_map_custom1_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_map_custom2": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_map_custom2_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_map_custom3": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_map_custom3_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_custom_4d": (c_void_p, (c_void_p, c_int, c_int64, c_int64, c_int64, c_int64, c_void_p, c_int, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_custom_inplace": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_int, c_void_p,), "ggml"),
    "ggml_cross_entropy_loss": (c_void_p, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_cross_entropy_loss_back": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_opt_step_adamw": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_opt_step_sgd": (c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_build_forward_select": (c_void_p, (c_void_p, c_void_p, c_int, c_int,), "ggml"),
    "ggml_build_forward_expand": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_build_forward_order": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_build_backward_expand": (None, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_new_graph": (c_void_p, (c_void_p,), "ggml"),
    "ggml_new_graph_custom": (c_void_p, (c_void_p, c_size_t, c_bool,), "ggml"),
    "ggml_graph_dup": (c_void_p, (c_void_p, c_void_p, c_bool,), "ggml"),
    "ggml_graph_cpy": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_graph_reset": (None, (c_void_p,), "ggml"),
    "ggml_graph_clear": (None, (c_void_p,), "ggml"),
    "ggml_graph_size": (c_int, (c_void_p,), "ggml"),
    "ggml_graph_node": (c_void_p, (c_void_p, c_int,), "ggml"),
    "ggml_graph_nodes": (c_void_p, (c_void_p,), "ggml"),
    "ggml_graph_n_nodes": (c_int, (c_void_p,), "ggml"),
    "ggml_graph_add_node": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_graph_overhead": (c_size_t, (), "ggml"),
    "ggml_graph_overhead_custom": (c_size_t, (c_size_t, c_bool,), "ggml"),
    "ggml_graph_get_tensor": (c_void_p, (c_void_p, c_char_p,), "ggml"),
    "ggml_graph_get_grad": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_graph_get_grad_acc": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_graph_print": (None, (c_void_p,), "ggml"),
    "ggml_graph_dump_dot": (None, (c_void_p, c_void_p, c_char_p,), "ggml"),
    "ggml_log_get": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_log_set": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_set_zero": (c_void_p, (c_void_p,), "ggml"),
    "ggml_quantize_init": (None, (c_int,), "ggml"),
    "ggml_quantize_free": (None, (), "ggml"),
    "ggml_quantize_requires_imatrix": (c_bool, (c_int,), "ggml"),
    "ggml_quantize_chunk": (c_size_t, (c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p,), "ggml"),
    "ggml_get_type_traits": (c_void_p, (c_int,), "ggml"),
    "ggml_threadpool_params_default": (ThreadpoolParams, (c_int,), "ggml"),
    "ggml_threadpool_params_init": (None, (c_void_p, c_int,), "ggml"),
    "ggml_threadpool_params_match": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_tallocr_new": (Tallocr, (c_void_p,), "ggml"),
    "ggml_tallocr_alloc": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_gallocr_new": (c_void_p, (c_void_p,), "ggml"),
    "ggml_gallocr_new_n": (c_void_p, (c_void_p, c_int,), "ggml"),
    "ggml_gallocr_free": (None, (c_void_p,), "ggml"),
    "ggml_gallocr_reserve": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_gallocr_reserve_n_size": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_gallocr_reserve_n": (c_bool, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_gallocr_alloc_graph": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_gallocr_get_buffer_size": (c_size_t, (c_void_p, c_int,), "ggml"),
    "ggml_backend_alloc_ctx_tensors_from_buft_size": (c_size_t, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_alloc_ctx_tensors": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_buft_name": (c_char_p, (c_void_p,), "ggml"),
    "ggml_backend_buft_alloc_buffer": (c_void_p, (c_void_p, c_size_t,), "ggml"),
    "ggml_backend_buft_get_alignment": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_buft_get_max_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_buft_get_alloc_size": (c_size_t, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_buft_is_host": (c_bool, (c_void_p,), "ggml"),
    "ggml_backend_buft_get_device": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_buffer_name": (c_char_p, (c_void_p,), "ggml"),
    "ggml_backend_buffer_free": (None, (c_void_p,), "ggml"),
    "ggml_backend_buffer_get_base": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_buffer_get_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_buffer_init_tensor": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_buffer_get_alignment": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_buffer_get_max_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_buffer_get_alloc_size": (c_size_t, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_buffer_clear": (None, (c_void_p, c_uint8,), "ggml"),
    "ggml_backend_buffer_is_host": (c_bool, (c_void_p,), "ggml"),
    "ggml_backend_buffer_set_usage": (None, (c_void_p, c_int,), "ggml"),
    "ggml_backend_buffer_get_usage": (c_int, (c_void_p,), "ggml"),
    "ggml_backend_buffer_get_type": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_buffer_reset": (None, (c_void_p,), "ggml"),
    "ggml_backend_tensor_copy": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_guid": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_name": (c_char_p, (c_void_p,), "ggml"),
    "ggml_backend_free": (None, (c_void_p,), "ggml"),
    "ggml_backend_get_default_buffer_type": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_alloc_buffer": (c_void_p, (c_void_p, c_size_t,), "ggml"),
    "ggml_backend_get_alignment": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_get_max_size": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_tensor_set_async": (None, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_get_async": (None, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_set_2d_async": (None, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_get_2d_async": (None, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_set": (None, (c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_get": (None, (c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_set_2d": (None, (c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_get_2d": (None, (c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_tensor_memset": (None, (c_void_p, c_uint8, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_synchronize": (None, (c_void_p,), "ggml"),
    "ggml_backend_graph_plan_create": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_graph_plan_free": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_graph_plan_compute": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_graph_compute": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_graph_compute_async": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_supports_op": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_supports_buft": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_offload_op": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_tensor_copy_async": (None, (c_void_p, c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_get_device": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_event_new": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_event_free": (None, (c_void_p,), "ggml"),
    "ggml_backend_event_record": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_event_synchronize": (None, (c_void_p,), "ggml"),
    "ggml_backend_event_wait": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_dev_name": (c_char_p, (c_void_p,), "ggml"),
    "ggml_backend_dev_description": (c_char_p, (c_void_p,), "ggml"),
    "ggml_backend_dev_memory": (None, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_dev_type": (c_int, (c_void_p,), "ggml"),
    "ggml_backend_dev_get_props": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_dev_backend_reg": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_dev_init": (c_void_p, (c_void_p, c_char_p,), "ggml"),
    "ggml_backend_dev_buffer_type": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_dev_host_buffer_type": (c_void_p, (c_void_p,), "ggml"),
    "ggml_backend_dev_buffer_from_host_ptr": (c_void_p, (c_void_p, c_void_p, c_size_t, c_size_t,), "ggml"),
    "ggml_backend_dev_supports_op": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_dev_supports_buft": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_dev_offload_op": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_reg_name": (c_char_p, (c_void_p,), "ggml"),
    "ggml_backend_reg_dev_count": (c_size_t, (c_void_p,), "ggml"),
    "ggml_backend_reg_dev_get": (c_void_p, (c_void_p, c_size_t,), "ggml"),
    "ggml_backend_reg_get_proc_address": (c_void_p, (c_void_p, c_char_p,), "ggml"),
    "ggml_backend_register": (None, (c_void_p,), "ggml"),
    "ggml_backend_device_register": (None, (c_void_p,), "ggml"),
    "ggml_backend_reg_count": (c_size_t, (), "ggml"),
    "ggml_backend_reg_get": (c_void_p, (c_size_t,), "ggml"),
    "ggml_backend_reg_by_name": (c_void_p, (c_char_p,), "ggml"),
    "ggml_backend_dev_count": (c_size_t, (), "ggml"),
    "ggml_backend_dev_get": (c_void_p, (c_size_t,), "ggml"),
    "ggml_backend_dev_by_name": (c_void_p, (c_char_p,), "ggml"),
    "ggml_backend_dev_by_type": (c_void_p, (c_int,), "ggml"),
    "ggml_backend_init_by_name": (c_void_p, (c_char_p, c_char_p,), "ggml"),
    "ggml_backend_init_by_type": (c_void_p, (c_int, c_char_p,), "ggml"),
    "ggml_backend_init_best": (c_void_p, (), "ggml"),
    "ggml_backend_load": (c_void_p, (c_char_p,), "ggml"),
    "ggml_backend_unload": (None, (c_void_p,), "ggml"),
    "ggml_backend_load_all": (None, (), "ggml"),
    "ggml_backend_load_all_from_path": (None, (c_char_p,), "ggml"),
    "ggml_backend_sched_new": (c_void_p, (c_void_p, c_void_p, c_int, c_size_t, c_bool, c_bool,), "ggml"),
    "ggml_backend_sched_free": (None, (c_void_p,), "ggml"),
    "ggml_backend_sched_reserve_size": (None, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_reserve": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_get_n_backends": (c_int, (c_void_p,), "ggml"),
    "ggml_backend_sched_get_backend": (c_void_p, (c_void_p, c_int,), "ggml"),
    "ggml_backend_sched_get_n_splits": (c_int, (c_void_p,), "ggml"),
    "ggml_backend_sched_get_n_copies": (c_int, (c_void_p,), "ggml"),
    "ggml_backend_sched_get_buffer_type": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_get_buffer_size": (c_size_t, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_set_tensor_backend": (None, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_get_tensor_backend": (c_void_p, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_split_graph": (None, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_alloc_graph": (c_bool, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_graph_compute": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_graph_compute_async": (c_int, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_sched_synchronize": (None, (c_void_p,), "ggml"),
    "ggml_backend_sched_reset": (None, (c_void_p,), "ggml"),
    "ggml_backend_sched_set_eval_callback": (None, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_meta_split_axis_name": (c_char_p, (c_int,), "ggml"),
    "ggml_backend_meta_device": (c_void_p, (c_void_p, c_size_t, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_graph_copy": (BackendGraphCopy, (c_void_p, c_void_p,), "ggml"),
    "ggml_backend_graph_copy_free": (None, (BackendGraphCopy,), "ggml"),
    "ggml_backend_compare_graph_backend": (c_bool, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t,), "ggml"),
    "ggml_backend_tensor_alloc": (c_int, (c_void_p, c_void_p, c_void_p,), "ggml"),
    "ggml_backend_view_init": (c_int, (c_void_p,), "ggml"),
    "ggml_backend_cpu_buffer_from_ptr": (c_void_p, (c_void_p, c_size_t,), "ggml"),
    "ggml_backend_cpu_buffer_type": (c_void_p, (), "ggml"),
    "ggml_numa_init": (None, (c_int,), "cpu"),
    "ggml_is_numa": (c_bool, (), "cpu"),
    "ggml_new_i32": (c_void_p, (c_void_p, c_int32,), "cpu"),
    "ggml_new_f32": (c_void_p, (c_void_p, c_float,), "cpu"),
    "ggml_set_i32": (c_void_p, (c_void_p, c_int32,), "cpu"),
    "ggml_set_f32": (c_void_p, (c_void_p, c_float,), "cpu"),
    "ggml_get_i32_1d": (c_int32, (c_void_p, c_int,), "cpu"),
    "ggml_set_i32_1d": (None, (c_void_p, c_int, c_int32,), "cpu"),
    "ggml_get_i32_nd": (c_int32, (c_void_p, c_int, c_int, c_int, c_int,), "cpu"),
    "ggml_set_i32_nd": (None, (c_void_p, c_int, c_int, c_int, c_int, c_int32,), "cpu"),
    "ggml_get_f32_1d": (c_float, (c_void_p, c_int,), "cpu"),
    "ggml_set_f32_1d": (None, (c_void_p, c_int, c_float,), "cpu"),
    "ggml_get_f32_nd": (c_float, (c_void_p, c_int, c_int, c_int, c_int,), "cpu"),
    "ggml_set_f32_nd": (None, (c_void_p, c_int, c_int, c_int, c_int, c_float,), "cpu"),
    "ggml_threadpool_new": (c_void_p, (c_void_p,), "cpu"),
    "ggml_threadpool_free": (None, (c_void_p,), "cpu"),
    "ggml_threadpool_get_n_threads": (c_int, (c_void_p,), "cpu"),
    "ggml_threadpool_pause": (None, (c_void_p,), "cpu"),
    "ggml_threadpool_resume": (None, (c_void_p,), "cpu"),
    "ggml_graph_plan": (Cplan, (c_void_p, c_int, c_void_p,), "cpu"),
    "ggml_graph_compute": (c_int, (c_void_p, c_void_p,), "cpu"),
    "ggml_graph_compute_with_ctx": (c_int, (c_void_p, c_void_p, c_int,), "cpu"),
    "ggml_cpu_has_sse3": (c_int, (), "cpu"),
    "ggml_cpu_has_ssse3": (c_int, (), "cpu"),
    "ggml_cpu_has_avx": (c_int, (), "cpu"),
    "ggml_cpu_has_avx_vnni": (c_int, (), "cpu"),
    "ggml_cpu_has_avx2": (c_int, (), "cpu"),
    "ggml_cpu_has_bmi2": (c_int, (), "cpu"),
    "ggml_cpu_has_f16c": (c_int, (), "cpu"),
    "ggml_cpu_has_fma": (c_int, (), "cpu"),
    "ggml_cpu_has_avx512": (c_int, (), "cpu"),
    "ggml_cpu_has_avx512_vbmi": (c_int, (), "cpu"),
    "ggml_cpu_has_avx512_vnni": (c_int, (), "cpu"),
    "ggml_cpu_has_avx512_bf16": (c_int, (), "cpu"),
    "ggml_cpu_has_amx_int8": (c_int, (), "cpu"),
    "ggml_cpu_has_neon": (c_int, (), "cpu"),
    "ggml_cpu_has_arm_fma": (c_int, (), "cpu"),
    "ggml_cpu_has_fp16_va": (c_int, (), "cpu"),
    "ggml_cpu_has_dotprod": (c_int, (), "cpu"),
    "ggml_cpu_has_matmul_int8": (c_int, (), "cpu"),
    "ggml_cpu_has_sve": (c_int, (), "cpu"),
    "ggml_cpu_get_sve_cnt": (c_int, (), "cpu"),
    "ggml_cpu_has_sme": (c_int, (), "cpu"),
    "ggml_cpu_has_sme2": (c_int, (), "cpu"),
    "ggml_cpu_has_riscv_v": (c_int, (), "cpu"),
    "ggml_cpu_get_rvv_vlen": (c_int, (), "cpu"),
    "ggml_cpu_has_vsx": (c_int, (), "cpu"),
    "ggml_cpu_has_vxe": (c_int, (), "cpu"),
    "ggml_cpu_has_wasm_simd": (c_int, (), "cpu"),
    "ggml_cpu_has_llamafile": (c_int, (), "cpu"),
    "ggml_get_type_traits_cpu": (c_void_p, (c_int,), "cpu"),
    "ggml_cpu_init": (None, (), "cpu"),
    "ggml_backend_cpu_init": (c_void_p, (), "cpu"),
    "ggml_backend_is_cpu": (c_bool, (c_void_p,), "cpu"),
    "ggml_backend_cpu_set_n_threads": (None, (c_void_p, c_int,), "cpu"),
    "ggml_backend_cpu_set_threadpool": (None, (c_void_p, c_void_p,), "cpu"),
    "ggml_backend_cpu_set_abort_callback": (None, (c_void_p, c_void_p, c_void_p,), "cpu"),
    "ggml_backend_cpu_set_use_ref": (None, (c_void_p, c_bool,), "cpu"),
    "ggml_backend_cpu_reg": (c_void_p, (), "cpu"),
    "ggml_cpu_fp32_to_fp32": (None, (c_void_p, c_void_p, c_int64,), "cpu"),
    "ggml_cpu_fp32_to_i32": (None, (c_void_p, c_void_p, c_int64,), "cpu"),
    "ggml_cpu_fp32_to_fp16": (None, (c_void_p, c_void_p, c_int64,), "cpu"),
    "ggml_cpu_fp16_to_fp32": (None, (c_void_p, c_void_p, c_int64,), "cpu"),
    "ggml_cpu_fp32_to_bf16": (None, (c_void_p, c_void_p, c_int64,), "cpu"),
    "ggml_cpu_bf16_to_fp32": (None, (c_void_p, c_void_p, c_int64,), "cpu"),
    "ggml_backend_rpc_init": (c_void_p, (c_char_p, c_uint32,), "rpc"),
    "ggml_backend_is_rpc": (c_bool, (c_void_p,), "rpc"),
    "ggml_backend_rpc_buffer_type": (c_void_p, (c_char_p, c_uint32,), "rpc"),
    "ggml_backend_rpc_get_device_memory": (None, (c_char_p, c_uint32, c_void_p, c_void_p,), "rpc"),
    "ggml_backend_rpc_start_server": (None, (c_char_p, c_char_p, c_size_t, c_size_t, c_void_p,), "rpc"),
    "ggml_backend_rpc_reg": (c_void_p, (), "rpc"),
    "ggml_backend_rpc_add_server": (c_void_p, (c_char_p,), "rpc"),
})
