//! `halocline explain --grid cubed:96` and of other grids of patches.

mod halos;
mod layout;
mod marks;
mod net;
mod picture;
mod plan;
mod report;

pub(super) use layout::{PatchLayout, Values};

use super::args::GridArgs;
use super::traffic::{MOST_RANKS, Traffic};
use super::{bound, report as tables};
use crate::clash::{self, Named};
use crate::error::CommandError;
use crate::info::plural;
use crate::options::{self, Periodic};
use crate::plot;
use crate::ranks::{self, RanksArgs, Transport, check_memory};
use halocline::plan::PatternPlan;
use halocline::{
    BindOptions, Communicator, Corners, DomainShape, Field, Halo, HaloExchange, Layout, LayoutError,
    PatchDecomposition, PatchError, PatchGrid, Pattern, PatternError, Quantity,
};

/// Fields on a grid of patches that is cut for ranks.
struct Case<'a> {
    args: &'a GridArgs,
    layout: PatchLayout,
    decomposition: PatchDecomposition,
    quantity: Quantity,
    halo: Halo,
}

/// Plans one rank, or starts all of them.
pub(super) fn run(args: &GridArgs, layout: PatchLayout, json: bool) -> Result<u8, CommandError> {
    if args.division.periodic != Periodic::None {
        return Err(CommandError::usage(format!(
            "`--periodic` with {layout}, whose patches are joined by seams; leave it out"
        )));
    }
    clash::check(
        &[],
        &[Named::new("--plot", args.plot.as_deref()), Named::new("--plot-halos", args.plot_halos.as_deref())],
    )?;
    plot::check(args.plot.iter().chain(&args.plot_halos))?;
    if args.plot_halos.is_some() {
        halos::Shown::new(args, layout)?.check()?;
    }
    match args.transport {
        None => plan_one(&Case::new(args, layout, args.ranks.unwrap_or(0))?, json),
        Some(transport) => ranks::run(
            &RanksArgs { ranks: args.ranks, transport, node_aware: None },
            |ranks| {
                bound::check_ranks(ranks)?;
                fits(&Case::new(args, layout, ranks)?, transport)
            },
            || Ok(()),
            |comm, ()| bind(comm, &Case::new(args, layout, comm.size())?, json),
        ),
    }
}

/// The grid with this name, with corners as they are asked for.
fn grid(args: &GridArgs, layout: PatchLayout) -> Result<PatchGrid, CommandError> {
    let grid = layout.grid()?;
    let Some(axis) = args.corners else { return Ok(grid) };
    grid.corners(Corners::ThroughAxis(axis.into())).map_err(|error| match error {
        PatternError::Patch(PatchError::NoThreePatchCorners) => CommandError::usage(format!(
            "`--corners` with {layout}, which has no corner of three patches with cells behind it; leave it out"
        )),
        other => other.into(),
    })
}

impl<'a> Case<'a> {
    fn new(args: &'a GridArgs, layout: PatchLayout, ranks: usize) -> Result<Self, CommandError> {
        let grid = grid(args, layout)?;
        let decomposition = match args.division.blocks() {
            None => grid.decompose(ranks)?,
            Some(blocks) => {
                let Ok(blocks) = <[usize; 2]>::try_from(blocks) else {
                    return Err(CommandError::usage(format!(
                        "`--decomposition` has {}; give the blocks of each patch along its rows and columns, such as 2x2",
                        plural(blocks.len(), "number")
                    )));
                };
                grid.decompose_into(&vec![blocks; grid.extents().len()], ranks)?
            }
        };
        let (quantity, halo) = (args.quantity.quantity(), Halo::uniform(args.halo));
        args.dtype.check_components(quantity.components())?;
        Ok(Self { args, layout, decomposition, quantity, halo })
    }

    fn plan_of(&self, rank: usize) -> Result<PatternPlan, PatternError> {
        self.decomposition.pattern_of(rank, &self.quantity, &self.halo)
    }

    /// The layout of an array of a domain.
    fn layout_of(&self, shape: &DomainShape) -> Result<Layout, LayoutError> {
        self.args.layout.layout(self.args.dtype, &shape.extents())
    }

    /// Bytes of a value of all fields.
    fn bytes(&self) -> usize {
        self.args.fields as usize * self.args.dtype.element().size()
    }

    /// Describes the grid and its fields.
    fn title(&self) -> String {
        let patches = match self.decomposition.grid().extents().len() {
            1 => "1 patch".to_owned(),
            patches => format!("{patches} patches"),
        };
        format!(
            "grid {}, {patches} in {}, halo {}, {}, {}, {}, {} order",
            self.layout,
            plural(self.decomposition.domains() as usize, "block"),
            self.args.halo,
            options::name(&self.args.quantity),
            plural(self.args.fields as usize, "field"),
            options::name(&self.args.dtype),
            options::name(&self.args.layout).to_uppercase(),
        )
    }
}

fn plan_one(case: &Case<'_>, json: bool) -> Result<u8, CommandError> {
    let (rank, ranks) = (case.args.rank, case.decomposition.ranks());
    if case.args.plot.is_some() && ranks > MOST_RANKS {
        return Err(CommandError::usage(format!(
            "a picture of {ranks} ranks; it can have at most {MOST_RANKS}, so give fewer or leave `--plot` out"
        )));
    }
    let pattern = case.plan_of(rank)?;
    let regions = plan::regions(case, &pattern)?;
    let all = || Traffic::of_plans(ranks, case.bytes() as u128, |rank| case.plan_of(rank));
    let traffic = (ranks <= MOST_RANKS).then(all).transpose()?;
    tables::print(|out| {
        report::grid(out, case, json)?;
        if let Some(traffic) = &traffic {
            report::ranks(out, case, traffic, json)?;
        }
        report::plan(out, case, &pattern, &regions, json)?;
        traffic.as_ref().map_or(Ok(()), |traffic| tables::totals(out, traffic, json))
    })?;
    draw(case)?;
    Ok(0)
}

/// Draws the pictures that are asked for: the patches and their owners, and the halos.
fn draw(case: &Case<'_>) -> Result<(), CommandError> {
    let GridArgs { plot, plot_halos, .. } = case.args;
    if let Some(path) = plot {
        plot::save(path, &picture::PatchPicture::new(case.layout, &case.decomposition)?)?;
    }
    plot_halos.as_deref().map_or(Ok(()), |path| halos::Shown::new(case.args, case.layout)?.draw(path))
}

/// Refuses fields that the memory of this machine cannot hold.
fn fits(case: &Case<'_>, transport: Transport) -> Result<(), CommandError> {
    // The first blocks are the largest.
    let mut bytes: u128 = 0;
    for (_, shape) in &case.plan_of(0)?.domains {
        bytes += case.layout_of(shape)?.span().end as u128;
    }
    let each = bytes * u128::from(case.args.fields);
    let ranks = case.decomposition.ranks();
    check_memory(transport, ranks, each, ("the fields take", "leave `--transport` out"))
}

/// Binds the fields of all domains as one of the ranks. Collective.
fn bind(comm: &Communicator, case: &Case<'_>, json: bool) -> Result<u8, CommandError> {
    let pattern = Pattern::patches(comm, &case.decomposition, &case.quantity, &case.halo)?;
    let mut fields: Vec<Field> = Vec::new();
    for (number, shape) in &pattern.plan().domains {
        for _ in 0..case.args.fields {
            fields.push(Field::allocate(comm, case.layout_of(shape)?)?.on_domain(*number));
        }
    }
    let pairs: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&pattern, field)).collect();
    let options = BindOptions::default().link(case.args.link.choice());
    let halo = HaloExchange::bind_with(comm, &pairs, &options)?;
    let said = bound::gather(comm, &[bound::describe(&case.title(), &halo, &pattern, case.bytes())])?;
    if comm.rank() == 0 {
        tables::print_bound(&said, json)?;
        draw(case)?;
    }
    // A rank that left earlier would hide an error of rank 0.
    comm.barrier()?;
    Ok(0)
}
