//! `halocline explain ocean`.

use super::args::OceanArgs;
use super::{bound, report};
use crate::error::CommandError;
use crate::ocean::{self, Case, Exchanges};
use crate::ranks;
use halocline::Communicator;

/// Starts the ranks, which bind the exchanges of a run.
pub(super) fn run(args: &OceanArgs, json: bool) -> Result<u8, CommandError> {
    let fesom = ocean::read(args.data.as_deref())?;
    let nodes = fesom.nodes.len();
    ranks::run(
        &args.ranks,
        |ranks| {
            bound::check_ranks(ranks)?;
            ocean::check_ranks(ranks, nodes)
        },
        || Ok(Case::new(fesom)?),
        |comm, case| bind(comm, case, json),
    )
}

/// Binds as one of the ranks. Collective.
fn bind(comm: &Communicator, case: &Case, json: bool) -> Result<u8, CommandError> {
    let partition = ocean::share_partition(comm, case)?;
    let domains = case.mesh.topology.domains_by_vertex(&partition, comm.rank())?;
    let exchanges = Exchanges::bind(comm, &domains, case.layers())?;
    let level = case.layers() * size_of::<f64>();
    // Both field sets have the same layout.
    let temperature = exchanges.temperature.alternative(0)?;
    let mine = [
        bound::describe(
            "gradients: 2 fields on triangles",
            &exchanges.gradients,
            &exchanges.triangles,
            2 * level,
        ),
        bound::describe("temperature: 1 field on nodes", &temperature, &exchanges.nodes, level),
    ];
    let said = bound::gather(comm, &mine)?;
    if comm.rank() == 0 {
        report::print_bound(&said, json)?;
    }
    comm.barrier()?;
    Ok(0)
}
