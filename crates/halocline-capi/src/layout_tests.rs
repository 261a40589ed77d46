//! The structs of Rust have the layout of those in the header.

/// The offsets and sizes that the committed list has of a struct of the header: its size, then its fields.
fn listed(name: &str) -> (usize, Vec<(String, usize, usize)>) {
    let number = |word: &str| word.parse::<usize>().unwrap();
    let mut lines = include_str!("../abi.txt").lines();
    let head = format!("struct {name} ");
    let size = lines.find_map(|line| line.strip_prefix(&head)).unwrap_or_else(|| panic!("no {name}"));
    let fields = lines.map_while(|line| line.strip_prefix("  ")).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].to_owned(), number(words[1]), number(words[2]))
    });
    (number(size), fields.collect())
}

/// The size of the field that a function returns a reference to.
fn size_of_field<S, F>(_: impl FnOnce(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layouts {
    ($($test:ident: $of:path = $name:literal { $($field:ident)* })*) => {$(
        #[test]
        fn $test() {
            type Of = $of;
            let (size, fields) = listed($name);
            let own = [$((stringify!($field), std::mem::offset_of!(Of, $field), size_of_field(|of: &Of| &of.$field))),*];
            let own: Vec<_> = own.into_iter().map(|(name, at, size)| (name.to_owned(), at, size)).collect();
            assert_eq!((size_of::<Of>(), own), (size, fields));
        }
    )*};
}

layouts! {
    mpi_options_lies_as_in_the_header: crate::comm::MpiOptions = "halocline_mpi_options" { size node_aware }
    grid_lies_as_in_the_header: crate::grid::Grid = "halocline_grid" { size axes extents periodic domains_per_rank }
    halo_lies_as_in_the_header: crate::grid::HaloWidths = "halocline_halo" { size width axes low high neighbours }
    box_lies_as_in_the_header: crate::domain::CellBox = "halocline_box" { first extents }
    domain_lies_as_in_the_header: crate::domain::DomainShape = "halocline_domain" { size axes number owned_count extents owned }
    layout_lies_as_in_the_header: crate::layout::LayoutOptions = "halocline_layout" { size dimensions extents strides axis_count axes origin_count origin name element padded }
    memory_lies_as_in_the_header: crate::field::MemoryOptions = "halocline_memory" { size base release context space device }
    binding_lies_as_in_the_header: crate::exchange::Binding = "halocline_binding" { pattern field }
    bind_options_lies_as_in_the_header: crate::exchange::BindChoices = "halocline_bind_options" { size name deadline streams stream_count ll_bytes link checked run_inline stream_waits ll reserved }
    pending_lies_as_in_the_header: crate::pending::PendingExchange = "halocline_pending" { exchange epoch }
    cells_lies_as_in_the_header: crate::cells::Cells = "halocline_cells" { size number count ids halo_count halo_ids halo_indices owners level_count levels }
    link_lies_as_in_the_header: crate::message::LinkOfRank = "halocline_link" { peer direction path }
    packet_lies_as_in_the_header: crate::packet::PacketOptions = "halocline_packet" { size metadata metadata_bytes payload payload_bytes release context stream has_payload space device reserved }
    contents_lies_as_in_the_header: crate::packet::Contents = "halocline_contents" { size metadata metadata_bytes payload payload_bytes has_payload space device reserved }
    argument_lies_as_in_the_header: crate::program::Argument = "halocline_argument" { base dimensions extents strides origin integer real kind element space device read_only reserved }
    allocator_lies_as_in_the_header: crate::allocator::AllocatorOptions = "halocline_allocator" { size allocate deallocate release context stream space device }
    resource_statistics_lies_as_in_the_header: crate::memory_resource::Statistics = "halocline_resource_statistics" { size in_use peak allocations spilled }
    traffic_lies_as_in_the_header: crate::packet::TrafficOfRank = "halocline_traffic" { packets metadata host pinned device }
    packet_statistics_lies_as_in_the_header: crate::packet::PacketStatistics = "halocline_packet_statistics" { size rounds sent received }
    mapping_statistics_lies_as_in_the_header: crate::comm::MappingStatistics = "halocline_mapping_statistics" { size hits opens evictions staged entries pinned bytes_held mapped bytes_mapped messages malformed }
    patch_side_lies_as_in_the_header: crate::patches::Side = "halocline_patch_side" { patch axis is_high }
    seam_lies_as_in_the_header: crate::patches::JoinedSides = "halocline_seam" { kind one other }
    quantity_lies_as_in_the_header: crate::patches::quantity::Places = "halocline_quantity" { size components places }
    patch_block_lies_as_in_the_header: crate::patches::decomposition::Block = "halocline_patch_block" { size patch first extents owner }
    patch_transfer_lies_as_in_the_header: crate::patches::decomposition::Moved = "halocline_patch_transfer" { from to from_rank to_rank from_component to_component source target extents is_swapped is_flipped is_negated }
}

macro_rules! options {
    ($($of:path)*) => {
        #[test]
        fn options_have_the_size_of_their_first_version() {
            use crate::options::Options;
            $({
                type Of = $of;
                assert_eq!(size_of::<Of>(), Of::FIRST_SIZE, "{}", Of::NAME);
            })*
        }
    };
}

options! {
    crate::comm::MpiOptions
    crate::grid::Grid
    crate::grid::HaloWidths
    crate::domain::DomainShape
    crate::layout::LayoutOptions
    crate::field::MemoryOptions
    crate::exchange::BindChoices
    crate::cells::Cells
    crate::packet::PacketOptions
    crate::packet::Contents
    crate::allocator::AllocatorOptions
    crate::memory_resource::Statistics
    crate::packet::PacketStatistics
    crate::comm::MappingStatistics
    crate::patches::quantity::Places
    crate::patches::decomposition::Block
}
