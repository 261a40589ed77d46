//! The mesh and its partition over ranks, and the fields and exchanges of a rank.

use super::input::{Fesom, Source};
use super::state::Case;
use crate::error::CommandError;
use halocline::{Array, BindOptions, Communicator, Field, HaloExchange, MeshDomains, Partition, Pattern};
use std::ops::Deref;
use std::path::Path;

/// Reads mesh and state from this directory, or the embedded ones.
pub(crate) fn read(directory: Option<&Path>) -> Result<Fesom, CommandError> {
    Ok(Fesom::read(&directory.map_or(Source::Embedded, |path| Source::Directory(path.to_owned())))?)
}

/// Refuses a number of ranks that does not fit a mesh with this number of nodes.
pub(crate) fn check_ranks(ranks: usize, nodes: usize) -> Result<(), CommandError> {
    if ranks > nodes {
        return Err(CommandError::usage(format!(
            "{ranks} ranks for the {nodes} nodes of the model's mesh; use at most one rank for each node"
        )));
    }
    Ok(())
}

/// The owner of each node, computed by METIS on rank 0 for all ranks. Collective.
pub(crate) fn share_partition(comm: &Communicator, case: &Case) -> Result<Partition, CommandError> {
    let mine = match comm.rank() {
        0 => Partition::metis(&case.mesh.topology.vertex_graph()?, comm.size())?.owners().to_vec(),
        _ => Vec::new(),
    };
    Ok(Partition::given(comm.broadcast(0, mine)?, comm.size())?)
}

/// The fields of one rank, and their bound exchanges.
///
/// A step reads one temperature array and writes the other one, and the next step does the reverse. Both arrays are bound as alternative
/// field sets of one exchange.
pub(crate) struct Exchanges<A> {
    /// The pattern of the nodes.
    pub(crate) nodes: Pattern,
    /// The pattern of the triangles.
    pub(crate) triangles: Pattern,
    /// Temperature, a row of layers for each node.
    pub(crate) temperatures: [A; 2],
    /// The gradient of the temperature to the east and to the north, a row of layers for each triangle.
    pub(crate) gradient: [A; 2],
    /// The exchange of both gradients.
    pub(crate) gradients: HaloExchange,
    /// The exchange of the temperature; the field set is 0 or 1.
    pub(crate) temperature: HaloExchange,
}

impl Exchanges<Array<f64>> {
    /// Makes patterns and host fields, and binds them. Collective.
    pub(crate) fn bind(
        comm: &Communicator,
        domains: &MeshDomains,
        layers: usize,
    ) -> Result<Self, CommandError> {
        let on_nodes = || Array::zeros(comm, &[domains.vertices().cells().len(), layers]);
        let on_triangles = || Array::zeros(comm, &[domains.elements().cells().len(), layers]);
        Self::with(comm, domains, [on_nodes()?, on_nodes()?], [on_triangles()?, on_triangles()?])
    }
}

impl<A: Deref<Target = Field>> Exchanges<A> {
    /// Makes patterns and binds these fields. Collective.
    pub(super) fn with(
        comm: &Communicator,
        domains: &MeshDomains,
        temperatures: [A; 2],
        gradient: [A; 2],
    ) -> Result<Self, CommandError> {
        let nodes = Pattern::unstructured(comm, &[domains.vertices().clone()])?;
        let triangles = Pattern::unstructured(comm, &[domains.elements().clone()])?;
        let gradients = HaloExchange::bind(comm, [(&triangles, &*gradient[0]), (&triangles, &*gradient[1])])?;
        let sets: [&[(&Pattern, &Field)]; 2] =
            [&[(&nodes, &*temperatures[0])], &[(&nodes, &*temperatures[1])]];
        let temperature = HaloExchange::bind_alternatives(comm, &sets, &BindOptions::default())?;
        Ok(Self { nodes, triangles, temperatures, gradient, gradients, temperature })
    }
}
