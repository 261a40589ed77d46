! Prints the size of each struct of the headers, as the modules declare it.
program sizes
  use halocline_packets
  use halocline_patches
  use halocline_programs
  use halocline_redistribution
  implicit none

  type(halocline_comm) :: comm_
  type(halocline_decomposition) :: decomposition_
  type(halocline_pattern) :: pattern_
  type(halocline_field) :: field_
  type(halocline_halo_exchange) :: halo_exchange_
  type(halocline_stream) :: stream_
  type(halocline_pending) :: pending_
  type(halocline_mpi_options) :: mpi_options_
  type(halocline_mapping_statistics) :: mapping_statistics_
  type(halocline_grid) :: grid_
  type(halocline_halo) :: halo_
  type(halocline_box) :: box_
  type(halocline_domain) :: domain_
  type(halocline_layout) :: layout_
  type(halocline_memory) :: memory_
  type(halocline_binding) :: binding_
  type(halocline_bind_options) :: bind_options_
  type(halocline_cells) :: cells_
  type(halocline_mesh) :: mesh_
  type(halocline_partition) :: partition_
  type(halocline_mesh_halos) :: mesh_halos_
  type(halocline_icon_grid) :: icon_grid_
  type(halocline_index_lists) :: index_lists_
  type(halocline_link) :: link_
  type(halocline_pattern_links) :: pattern_links_
  type(halocline_redistribute) :: redistribute_
  type(halocline_packet) :: packet_
  type(halocline_received) :: received_
  type(halocline_contents) :: contents_
  type(halocline_resource) :: resource_
  type(halocline_allocator) :: allocator_
  type(halocline_resource_statistics) :: resource_statistics_
  type(halocline_traffic) :: traffic_
  type(halocline_packet_statistics) :: packet_statistics_
  type(halocline_neighbors) :: neighbors_
  type(halocline_round) :: round_
  type(halocline_session) :: session_
  type(halocline_sparse) :: sparse_
  type(halocline_program) :: program_
  type(halocline_prepared) :: prepared_
  type(halocline_argument) :: argument_
  type(halocline_trace) :: trace_
  type(halocline_device_trace) :: device_trace_
  type(halocline_patch_grid) :: patch_grid_
  type(halocline_patch_decomposition) :: patch_decomposition_
  type(halocline_patch_side) :: patch_side_
  type(halocline_seam) :: seam_
  type(halocline_quantity) :: quantity_
  type(halocline_patch_block) :: patch_block_
  type(halocline_patch_transfer) :: patch_transfer_

  call show("comm", storage_size(comm_))
  call show("decomposition", storage_size(decomposition_))
  call show("pattern", storage_size(pattern_))
  call show("field", storage_size(field_))
  call show("halo_exchange", storage_size(halo_exchange_))
  call show("stream", storage_size(stream_))
  call show("pending", storage_size(pending_))
  call show("mpi_options", storage_size(mpi_options_))
  call show("mapping_statistics", storage_size(mapping_statistics_))
  call show("grid", storage_size(grid_))
  call show("halo", storage_size(halo_))
  call show("box", storage_size(box_))
  call show("domain", storage_size(domain_))
  call show("layout", storage_size(layout_))
  call show("memory", storage_size(memory_))
  call show("binding", storage_size(binding_))
  call show("bind_options", storage_size(bind_options_))
  call show("cells", storage_size(cells_))
  call show("mesh", storage_size(mesh_))
  call show("partition", storage_size(partition_))
  call show("mesh_halos", storage_size(mesh_halos_))
  call show("icon_grid", storage_size(icon_grid_))
  call show("index_lists", storage_size(index_lists_))
  call show("link", storage_size(link_))
  call show("pattern_links", storage_size(pattern_links_))
  call show("redistribute", storage_size(redistribute_))
  call show("packet", storage_size(packet_))
  call show("received", storage_size(received_))
  call show("contents", storage_size(contents_))
  call show("resource", storage_size(resource_))
  call show("allocator", storage_size(allocator_))
  call show("resource_statistics", storage_size(resource_statistics_))
  call show("traffic", storage_size(traffic_))
  call show("packet_statistics", storage_size(packet_statistics_))
  call show("neighbors", storage_size(neighbors_))
  call show("round", storage_size(round_))
  call show("session", storage_size(session_))
  call show("sparse", storage_size(sparse_))
  call show("program", storage_size(program_))
  call show("prepared", storage_size(prepared_))
  call show("argument", storage_size(argument_))
  call show("trace", storage_size(trace_))
  call show("device_trace", storage_size(device_trace_))
  call show("patch_grid", storage_size(patch_grid_))
  call show("patch_decomposition", storage_size(patch_decomposition_))
  call show("patch_side", storage_size(patch_side_))
  call show("seam", storage_size(seam_))
  call show("quantity", storage_size(quantity_))
  call show("patch_block", storage_size(patch_block_))
  call show("patch_transfer", storage_size(patch_transfer_))

contains

  subroutine show(name, bits)
    character(*), intent(in) :: name
    integer, intent(in) :: bits
    print "(3a, i0)", "struct halocline_", name, " ", bits / 8
  end subroutine
end program
