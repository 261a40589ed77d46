//! `halocline explain --grid …` of a regular grid.

use super::args::GridArgs;
use super::bound;
use super::patches::Values;
use super::plan::{self, Region};
use super::report::{self, Planned};
use super::traffic::{MOST_RANKS, Traffic};
use crate::error::CommandError;
use crate::info::plural;
use crate::options::{self, Grid};
use crate::ranks::{self, RanksArgs, Transport, check_memory};
use halocline::{
    BindOptions, Communicator, Decomposed, Decomposition, DomainShape, Field, Halo, HaloExchange, Layout,
    LayoutError, Pattern,
};

/// Plans one rank, or starts all of them.
pub(super) fn run(args: &GridArgs, cells: &Grid, json: bool) -> Result<u8, CommandError> {
    if args.plot.is_some()
        || args.plot_halos.is_some()
        || args.quantity != Values::Cells
        || args.corners.is_some()
    {
        return Err(CommandError::usage(format!(
            "`--plot`, `--plot-halos`, `--quantity` and `--corners` are for grids of patches, and {cells} is a regular grid; leave them out, or give \
             `--grid cubed:96`, for example"
        )));
    }
    match args.transport {
        None => plan_one(args, &decompose(args, cells, args.ranks.unwrap_or(0))?, json),
        Some(transport) => ranks::run(
            &RanksArgs { ranks: args.ranks, transport, node_aware: None },
            |ranks| {
                bound::check_ranks(ranks)?;
                fits(args, &decompose(args, cells, ranks)?, transport)
            },
            || Ok(()),
            |comm, ()| bind(comm, args, &decompose(args, cells, comm.size())?, json),
        ),
    }
}

fn decompose(args: &GridArgs, cells: &Grid, ranks: usize) -> Result<Decomposition, CommandError> {
    args.division.of(&cells.0, ranks)
}

fn layout(args: &GridArgs, shape: &DomainShape) -> Result<Layout, LayoutError> {
    args.layout.layout(args.dtype, &shape.extents())
}

/// Describes the grid and its fields.
fn title(args: &GridArgs, decomposition: &Decomposition) -> String {
    format!(
        "grid {}, periodic {}, in {} blocks, halo {}, {}, {}, {} order",
        Grid(decomposition.extents().to_vec()),
        args.division.periodic,
        Grid(decomposition.blocks_per_axis().unwrap_or_default()),
        args.halo,
        plural(args.fields as usize, "field"),
        options::name(&args.dtype),
        options::name(&args.layout).to_uppercase(),
    )
}

fn plan_one(args: &GridArgs, decomposition: &Decomposition, json: bool) -> Result<u8, CommandError> {
    let (halo, ranks) = (Halo::uniform(args.halo), decomposition.ranks());
    let pattern = decomposition.pattern_of(args.rank, &halo)?;
    let layout = layout(args, &pattern.domains[0].1)?;
    let regions: Vec<Region> = plan::regions(&pattern, &layout, args.fields)?;
    let cell = u128::from(args.fields) * layout.element().size() as u128;
    let traffic = (ranks <= MOST_RANKS).then(|| Traffic::of_grid(decomposition, &halo, cell)).transpose()?;
    let title = title(args, decomposition);
    let planned = Planned { title: &title, rank: args.rank, ranks, pattern: &pattern, regions: &regions };
    report::print(|out| {
        report::plan(out, &planned, json)?;
        traffic.as_ref().map_or(Ok(()), |traffic| report::totals(out, traffic, json))
    })?;
    Ok(0)
}

/// Refuses fields that the memory of this machine cannot hold.
fn fits(args: &GridArgs, decomposition: &Decomposition, transport: Transport) -> Result<(), CommandError> {
    // The first block is one of the largest.
    let pattern = decomposition.pattern_of(0, &Halo::uniform(args.halo))?;
    let bytes = layout(args, &pattern.domains[0].1)?.span().end as u128;
    let each = bytes * u128::from(args.fields);
    check_memory(transport, decomposition.ranks(), each, ("the fields take", "leave `--transport` out"))
}

/// Binds the fields as one of the ranks. Collective.
fn bind(
    comm: &Communicator,
    args: &GridArgs,
    decomposition: &Decomposition,
    json: bool,
) -> Result<u8, CommandError> {
    let pattern = decomposition.pattern(comm, Halo::uniform(args.halo))?;
    let layout = layout(args, &pattern.plan().domains[0].1)?;
    let fields: Vec<Field> =
        (0..args.fields).map(|_| Field::allocate(comm, layout.clone())).collect::<Result<_, _>>()?;
    let pairs: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&pattern, field)).collect();
    let options = BindOptions::default().link(args.link.choice());
    let halo = HaloExchange::bind_with(comm, &pairs, &options)?;
    let cell = args.fields as usize * layout.element().size();
    let title = title(args, decomposition);
    let said = bound::gather(comm, &[bound::describe(&title, &halo, &pattern, cell)])?;
    if comm.rank() == 0 {
        report::print_bound(&said, json)?;
    }
    // A rank that left earlier would hide an error of rank 0.
    comm.barrier()?;
    Ok(0)
}
