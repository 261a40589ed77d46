! Constants, handles and structs of the headers of C. Included by halocline.f90.
module halocline_types
  use, intrinsic :: iso_c_binding
  implicit none
  public

  ! The version of the interface that these modules have: HALOCLINE_ABI_VERSION of the header.
  integer(c_int32_t), parameter :: HALOCLINE_MODULES_ABI_VERSION = 1

  ! Statuses.
  integer(c_int32_t), parameter :: HALOCLINE_OK = 0
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_ARGUMENT = 1
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_HANDLE = 2
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_BUSY = 3
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_COMMUNICATION = 4
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_DEADLINE = 5
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_MPI = 6
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_DEVICE = 7
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_FAILED = 8
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_ELSEWHERE = 9
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_MEMORY = 10
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_FORKED = 11
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_CALLBACK = 12
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_INTERNAL = 13
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_PROGRAM = 14

  ! Options that an environment variable or the library decides by default.
  integer(c_int32_t), parameter :: HALOCLINE_DEFAULT = 0, HALOCLINE_ON = 1, HALOCLINE_OFF = 2
  ! `color` of halocline_comm_split for a rank that gets no communicator.
  integer(c_int64_t), parameter :: HALOCLINE_NO_COLOR = -1
  ! The most axes of a grid.
  integer, parameter :: HALOCLINE_AXES = 4
  ! Which halo cells are filled.
  integer(c_int32_t), parameter :: HALOCLINE_ALL = 0, HALOCLINE_FACES = 1, HALOCLINE_FACES_AND_EDGES = 2
  ! Element types; halocline_opaque has those of other sizes.
  integer(c_int32_t), parameter :: HALOCLINE_BOOL = 1, HALOCLINE_I8 = 2, HALOCLINE_U8 = 3, HALOCLINE_I16 = 4, HALOCLINE_U16 = 5
  integer(c_int32_t), parameter :: HALOCLINE_F16 = 6, HALOCLINE_BF16 = 7, HALOCLINE_I32 = 8, HALOCLINE_U32 = 9
  integer(c_int32_t), parameter :: HALOCLINE_F32 = 10, HALOCLINE_I64 = 11, HALOCLINE_U64 = 12, HALOCLINE_F64 = 13
  integer(c_int32_t), parameter :: HALOCLINE_C64 = 14, HALOCLINE_C128 = 15
  ! Where memory lies.
  integer(c_int32_t), parameter :: HALOCLINE_HOST = 0, HALOCLINE_CUDA = 1
  ! How numbers are combined.
  integer(c_int32_t), parameter :: HALOCLINE_SUM = 0, HALOCLINE_MIN = 1, HALOCLINE_MAX = 2
  integer(c_int32_t), parameter :: HALOCLINE_PRODUCT = 3, HALOCLINE_REPLACE = 4, HALOCLINE_AND = 5
  integer(c_int32_t), parameter :: HALOCLINE_OR = 6, HALOCLINE_XOR = 7
  ! How links move bytes.
  integer(c_int32_t), parameter :: HALOCLINE_LINK_AUTO = 0, HALOCLINE_LINK_PUSH = 1, HALOCLINE_LINK_PULL = 2
  integer(c_int32_t), parameter :: HALOCLINE_LINK_MAILBOX = 3, HALOCLINE_LINK_MESSAGE = 4
  integer(c_int32_t), parameter :: HALOCLINE_LINK_DEVICE_MAILBOX = 5, HALOCLINE_LINK_LL = 6
  integer(c_int32_t), parameter :: HALOCLINE_LINK_NCCL = 7
  ! The direction of a link or a message.
  integer(c_int32_t), parameter :: HALOCLINE_SEND = 0, HALOCLINE_RECEIVE = 1
  ! The moments of a round in a trace.
  integer(c_int32_t), parameter :: HALOCLINE_MOMENT_BEGUN = 0, HALOCLINE_MOMENT_INTERIOR = 1
  integer(c_int32_t), parameter :: HALOCLINE_MOMENT_WAITED = 2, HALOCLINE_MOMENT_DONE = 3

  ! Handles. One without a value, such as halocline_stream(), is the null handle.
  type, bind(c) :: halocline_comm
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_decomposition
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_pattern
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_field
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_halo_exchange
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_pattern_links
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_trace
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_device_trace
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_stream
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_pending
    integer(c_int64_t) :: exchange = 0
    integer(c_int64_t) :: epoch = 0
  end type

  ! Structs. Most begin with their size. A list is the c_loc of an array with the attribute target.
  type, bind(c) :: halocline_mpi_options
    integer(c_size_t) :: size = 16
    integer(c_int32_t) :: node_aware = HALOCLINE_DEFAULT
  end type
  type, bind(c) :: halocline_mapping_statistics
    integer(c_size_t) :: size = 96
    integer(c_int64_t) :: hits = 0
    integer(c_int64_t) :: opens = 0
    integer(c_int64_t) :: evictions = 0
    integer(c_int64_t) :: staged = 0
    integer(c_int64_t) :: entries = 0
    integer(c_int64_t) :: pinned = 0
    integer(c_int64_t) :: bytes_held = 0
    integer(c_int64_t) :: mapped = 0
    integer(c_int64_t) :: bytes_mapped = 0
    integer(c_int64_t) :: messages = 0
    integer(c_int64_t) :: malformed = 0
  end type
  type, bind(c) :: halocline_grid
    integer(c_size_t) :: size = 40
    integer(c_size_t) :: axes = 0
    type(c_ptr) :: extents = c_null_ptr
    type(c_ptr) :: periodic = c_null_ptr
    integer(c_size_t) :: domains_per_rank = 1
  end type
  type, bind(c) :: halocline_halo
    integer(c_size_t) :: size = 48
    integer(c_size_t) :: width = 0
    integer(c_size_t) :: axes = 0
    type(c_ptr) :: low = c_null_ptr
    type(c_ptr) :: high = c_null_ptr
    integer(c_int32_t) :: neighbours = HALOCLINE_ALL
  end type
  type, bind(c) :: halocline_box
    integer(c_size_t) :: first(4) = 0
    integer(c_size_t) :: extents(4) = 0
  end type
  type, bind(c) :: halocline_domain
    integer(c_size_t) :: size = 128
    integer(c_size_t) :: axes = 0
    integer(c_int64_t) :: number = 0
    integer(c_int64_t) :: owned_count = 0
    integer(c_size_t) :: extents(4) = 0
    type(halocline_box) :: owned
  end type
  ! Without `strides` an array is in C order: its last dimension is contiguous. halocline_field_of takes Fortran arrays as they are.
  type, bind(c) :: halocline_layout
    integer(c_size_t) :: size = 80
    integer(c_size_t) :: dimensions = 0
    type(c_ptr) :: extents = c_null_ptr
    type(c_ptr) :: strides = c_null_ptr
    integer(c_size_t) :: axis_count = 0
    type(c_ptr) :: axes = c_null_ptr
    integer(c_size_t) :: origin_count = 0
    type(c_ptr) :: origin = c_null_ptr
    type(c_ptr) :: name = c_null_ptr
    integer(c_int32_t) :: element = 0
    integer(c_int32_t) :: padded = 0
  end type
  ! `release`: the c_funloc of a procedure with the interface halocline_release.
  type, bind(c) :: halocline_memory
    integer(c_size_t) :: size = 40
    type(c_ptr) :: base = c_null_ptr
    type(c_funptr) :: release = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
    integer(c_int32_t) :: space = HALOCLINE_HOST
    integer(c_int32_t) :: device = 0
  end type
  type, bind(c) :: halocline_binding
    type(halocline_pattern) :: pattern
    type(halocline_field) :: field
  end type
  type, bind(c) :: halocline_bind_options
    integer(c_size_t) :: size = 72
    type(c_ptr) :: name = c_null_ptr
    real(c_double) :: deadline = 0
    type(c_ptr) :: streams = c_null_ptr
    integer(c_size_t) :: stream_count = 0
    integer(c_size_t) :: ll_bytes = 0
    integer(c_int32_t) :: link = HALOCLINE_LINK_AUTO
    integer(c_int32_t) :: checked = 0
    integer(c_int32_t) :: run_inline = 0
    integer(c_int32_t) :: stream_waits = 0
    integer(c_int32_t) :: ll = 0
    integer(c_int32_t) :: reserved = 0
  end type
  type, bind(c) :: halocline_link
    integer(c_size_t) :: peer = 0
    integer(c_int32_t) :: direction = HALOCLINE_SEND
    integer(c_int32_t) :: path = 0
  end type

  ! Callbacks. Any thread may call them; they must not call this library.
  abstract interface
    ! The library does not access the memory any more.
    subroutine halocline_release(context) bind(c)
      import
      type(c_ptr), value :: context
    end subroutine

    ! An operation has this outcome. `message` is a text of C, valid during the call: see halocline_text.
    subroutine halocline_done(context, status, message) bind(c)
      import
      type(c_ptr), value :: context
      integer(c_int32_t), value :: status
      type(c_ptr), value :: message
    end subroutine
  end interface

contains

  ! The element type of any other type of 1 to 256 bytes; of another size 0, which every call refuses.
  elemental function halocline_opaque(bytes) result(element)
    integer, intent(in) :: bytes
    integer(c_int32_t) :: element
    element = 0
    if (bytes >= 1 .and. bytes <= 256) element = 256 + bytes
  end function

  ! A text of C as one of Fortran; "" for c_null_ptr.
  function halocline_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer(c_size_t) :: length, at
    interface
      pure function strlen(text) bind(c) result(length)
        import
        type(c_ptr), value :: text
        integer(c_size_t) :: length
      end function
    end interface
    length = 0
    if (c_associated(pointer)) length = strlen(pointer)
    allocate (character(length) :: text)
    if (length == 0) return
    call c_f_pointer(pointer, characters, [length])
    do at = 1, length
      text(at:at) = characters(at)
    end do
  end function
end module
