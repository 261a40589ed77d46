//! The ocean as it lies on ranks before it moves: the mesh, who owns what, and what is exchanged.

use super::args::{ModelArgs, Partitioner};
use super::input::{Fesom, PARTS, Source};
use super::state::Case;
use crate::error::CommandError;
use halocline::{Array, BindOptions, Communicator, Field, HaloExchange, MeshDomains, Partition, Pattern};
use std::ops::Deref;

/// Mesh and state, cut for ranks.
pub(crate) struct Model(pub(super) Case);

impl Model {
    /// Reads mesh and state and refines them.
    pub(crate) fn read(args: &ModelArgs) -> Result<Self, CommandError> {
        Ok(Self(Case::new(read(args)?, args.refine)?))
    }

    /// Refuses numbers of ranks that the mesh cannot have.
    pub(crate) fn check_ranks(&self, args: &ModelArgs, ranks: usize) -> Result<(), CommandError> {
        check_ranks(args, ranks, self.0.fesom.nodes.len())
    }

    /// The owner of each node, computed by rank 0 for all ranks. Collective.
    pub(crate) fn partition(&self, comm: &Communicator, args: &ModelArgs) -> Result<Partition, CommandError> {
        share_partition(comm, &self.0, args.partition)
    }

    /// This rank's part of the mesh.
    pub(crate) fn domains(
        &self,
        comm: &Communicator,
        partition: &Partition,
    ) -> Result<MeshDomains, CommandError> {
        Ok(self.0.mesh.topology.domains_by_vertex(partition, comm.rank())?)
    }

    /// Layers of each node.
    pub(crate) fn layers(&self) -> usize {
        self.0.layers()
    }
}

/// Reads mesh and state.
pub(super) fn read(args: &ModelArgs) -> Result<Fesom, CommandError> {
    Ok(Fesom::read(&args.data.clone().map_or(Source::Embedded, Source::Directory))?)
}

/// Refuses numbers of ranks that a mesh of so many nodes, before refinement, cannot have.
pub(super) fn check_ranks(args: &ModelArgs, ranks: usize, nodes: usize) -> Result<(), CommandError> {
    if ranks == 0 || ranks > nodes {
        return Err(CommandError::usage(format!(
            "{ranks} ranks for the {nodes} nodes of the model's mesh; use at least one rank, and at most one for each node"
        )));
    }
    if args.partition == Partitioner::File && ranks > PARTS {
        return Err(CommandError::usage(format!(
            "{ranks} ranks, but the file's partition has {PARTS} parts; use at most {PARTS} ranks or `--partition metis`"
        )));
    }
    Ok(())
}

/// The owner of each node, computed by rank 0 for all ranks. Collective.
pub(super) fn share_partition(
    comm: &Communicator,
    case: &Case,
    partitioner: Partitioner,
) -> Result<Partition, CommandError> {
    let mine = || {
        Ok(partition(case, partitioner, comm.size())?.owners().iter().map(|&owner| owner as u64).collect())
    };
    let owners = share(comm, case.mesh.positions.len(), mine)?;
    Ok(Partition::given(owners.into_iter().map(|owner| owner as usize).collect(), comm.size())?)
}

/// A number for each node, computed by rank 0 for all ranks. Collective.
pub(super) fn share(
    comm: &Communicator,
    nodes: usize,
    find: impl FnOnce() -> Result<Vec<u64>, CommandError>,
) -> Result<Vec<u64>, CommandError> {
    let mine = if comm.rank() == 0 { find()? } else { Vec::new() };
    let all = comm.broadcast(0, mine)?;
    if all.len() != nodes {
        return Err(CommandError::failed(format!(
            "rank 0 sent {} numbers for {nodes} nodes; run the same version on all ranks",
            all.len()
        )));
    }
    Ok(all)
}

fn partition(case: &Case, partitioner: Partitioner, ranks: usize) -> Result<Partition, CommandError> {
    Ok(match partitioner {
        Partitioner::Metis => Partition::metis(&case.mesh.topology.vertex_graph()?, ranks)?,
        Partitioner::File => {
            // A new node goes where the first of its parents is.
            let part = |node: u32| case.fesom.parts[node as usize] as usize;
            let owners =
                case.mesh.origins.iter().map(|origin| part(origin.nodes[0]) * ranks / PARTS).collect();
            Partition::given(owners, ranks)?
        }
    })
}

/// The fields of one rank, and their bound exchanges.
///
/// A step reads one temperature array and writes the other, and the next step goes back: both are bound
/// together, beside the gradients.
pub(crate) struct Exchanges<A> {
    /// The pattern of the nodes.
    pub(crate) nodes: Pattern,
    /// And of the triangles.
    pub(crate) triangles: Pattern,
    /// Temperature, a row of layers for each node.
    pub(crate) temperatures: [A; 2],
    /// Its gradient towards east and towards north, a row of layers for each triangle.
    pub(crate) gradient: [A; 2],
    /// The exchange of both gradients.
    pub(crate) gradients: HaloExchange,
    /// The exchange of either temperature: set 0 or 1.
    pub(crate) temperature: HaloExchange,
}

impl Exchanges<Array<f64>> {
    /// Makes patterns and fields of the host, and binds them. Collective.
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
    /// Makes patterns, and binds these fields. Collective.
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
