//! `halocline explain ocean`.

use super::args::OceanArgs;
use super::{bound, report};
use crate::error::CommandError;
use crate::ocean::{Exchanges, Model};
use crate::ranks;
use halocline::Communicator;

/// Starts the ranks, which bind what a run would exchange.
pub(super) fn run(args: &OceanArgs, json: bool) -> Result<u8, CommandError> {
    let model = Model::read(&args.model)?;
    ranks::run(
        &args.transport.of(args.ranks),
        |ranks| {
            bound::check_ranks(ranks)?;
            model.check_ranks(&args.model, ranks)
        },
        || Ok(()),
        |comm, ()| bind(comm, args, &model, json),
    )
}

/// Binds as one of the ranks. Collective.
fn bind(comm: &Communicator, args: &OceanArgs, model: &Model, json: bool) -> Result<u8, CommandError> {
    let partition = model.partition(comm, &args.model)?;
    let domains = model.domains(comm, &partition)?;
    let exchanges = Exchanges::bind(comm, &domains, model.layers())?;
    let level = model.layers() * size_of::<f64>();
    // Both levels lie alike.
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
        let traffic = bound::traffic(&said);
        report::print(|out| {
            report::bound(out, &said, json)?;
            report::totals(out, &traffic, json)
        })?;
    }
    comm.barrier()?;
    Ok(0)
}
