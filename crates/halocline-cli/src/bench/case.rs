//! A case: pattern and fields of one rank, and the check of their exchange.

use super::args::{self, HaloArgs, Memory};
use crate::error::CommandError;
use crate::info::plural;
use crate::ranks::check_memory;
use halocline::{
    Communicator, Decomposed, Decomposition, DomainShape, Error, Field, Halo, Layout, Pattern, PatternError,
    RegularGrid, UnstructuredDomain,
};
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Number of exchanges of changing data that are checked before the measurement.
const CHECKED: u64 = 4;

/// Pattern and fields of one rank.
pub(super) struct Case {
    pub(super) pattern: Pattern,
    pub(super) fields: Vec<Field>,
    cells: Cells,
}

/// The cells of a field, in row-major order.
struct Cells {
    /// Global numbers.
    ids: Vec<u64>,
    owned: Vec<bool>,
    /// Byte offset of a cell's first level.
    offsets: Vec<isize>,
    levels: usize,
    level_stride: isize,
    element: usize,
}

/// Describes the exchanged fields in the terms of the command line.
pub(super) fn title(args: &HaloArgs) -> String {
    let (dtype, layout) = (args::name(&args.dtype), args::name(&args.layout).to_uppercase());
    let fields = plural(args.fields as usize, "field");
    match args.mesh {
        Some(_) => format!(
            "mesh {0}x{0} a rank, {1}, {fields}, {dtype}, {layout} order",
            args.cells,
            plural(args.levels as usize, "level")
        ),
        None => format!("{} a rank, halo {}, {fields}, {dtype}, {layout} order", args.grid, args.halo),
    }
}

impl Case {
    /// Collective.
    pub(super) fn new(comm: &Communicator, args: &HaloArgs) -> Result<Self, CommandError> {
        let (pattern, ids) = pattern(comm, args)?;
        let (_, shape) = &pattern.plan().domains[0];
        let mut extents = shape.extents();
        let axes = extents.len();
        if args.mesh.is_some() && args.levels > 1 {
            extents.push(args.levels as usize);
        }
        let layout = args.layout.layout(args.dtype, &extents)?;
        let fields: Vec<Field> = (0..args.fields)
            .map(|number| field(comm, &layout, args.memory, number as usize))
            .collect::<Result<_, _>>()?;
        let cells = Cells {
            owned: owned(shape),
            offsets: offsets(&extents[..axes], &layout.strides()[..axes]),
            ids,
            levels: extents.get(axes).copied().unwrap_or(1),
            level_stride: layout.strides().get(axes).copied().unwrap_or(0),
            element: layout.element().size(),
        };
        Ok(Self { pattern, fields, cells })
    }

    /// Bytes of a cell of a field, over all levels.
    pub(super) fn bytes_of_cell(&self, field: &Field) -> usize {
        let layout = field.layout();
        let axes = self.pattern.plan().domains[0].1.axes();
        layout.extents()[axes..].iter().product::<usize>() * layout.element().size()
    }

    /// Exchanges changing data a few times with `exchange_all`, and checks every cell. Collective.
    pub(super) fn verify(
        &self,
        comm: &Communicator,
        link: &str,
        exchange_all: impl Fn() -> Result<(), Error>,
    ) -> Result<(), CommandError> {
        for exchange in 1..=CHECKED {
            self.each_value(exchange, true, |place, value| {
                place.copy_from_slice(value);
                true
            });
            comm.barrier()?;
            exchange_all()?;
            let (wrong, first) = self.each_value(exchange, false, |place, value| place == value);
            if let Some((field, cell)) = first {
                let (rank, cells) =
                    (comm.rank(), self.cells.ids.len() * self.cells.levels * self.fields.len());
                return Err(CommandError::failed(format!(
                    "rank {rank}, link {link}, exchange {exchange}: {wrong} of {cells} values are wrong, the first at cell {cell} of field {field}; please report this with the command"
                )));
            }
            comm.barrier()?;
        }
        Ok(())
    }

    /// Calls `visit` with the memory and the expected value of each element of all cells, or of the owned cells. Returns how often
    /// `visit` returned false, and field and cell of the first time.
    fn each_value(
        &self,
        exchange: u64,
        owned_only: bool,
        mut visit: impl FnMut(&mut [u8], &[u8]) -> bool,
    ) -> (usize, Option<(usize, u64)>) {
        let Cells { ids, owned, offsets, levels, level_stride, element } = &self.cells;
        let (mut refused, mut first) = (0, None);
        for (number, field) in self.fields.iter().enumerate() {
            let base = field.base().as_ptr();
            for ((&id, &owned), &offset) in ids.iter().zip(owned).zip(offsets) {
                if owned_only && !owned {
                    continue;
                }
                for level in 0..*levels {
                    let place = base.wrapping_offset(offset + level as isize * level_stride);
                    // SAFETY: the layout keeps the element within the field, and no exchange is in flight.
                    let place = unsafe { std::slice::from_raw_parts_mut(place, *element) };
                    let value = value(id, level as u64, number as u64, exchange).to_le_bytes();
                    if !visit(place, &value[..*element]) {
                        refused += 1;
                        first = first.or(Some((number, id)));
                    }
                }
            }
        }
        (refused, first)
    }
}

/// The value of a cell before an exchange. It differs between cells, levels, fields and exchanges.
fn value(id: u64, level: u64, field: u64, exchange: u64) -> u64 {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ level.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ field << 56).wrapping_add(exchange.wrapping_mul(0x94d0_49bb_1331_11eb))
}

/// The pattern, and the global number of each cell of this rank's domain, in row-major order.
pub(super) fn pattern(comm: &Communicator, args: &HaloArgs) -> Result<(Pattern, Vec<u64>), CommandError> {
    if args.mesh.is_some() {
        let domain = square(args.cells as usize, comm.rank(), comm.size());
        let ids = domain.cells().to_vec();
        return Ok((Pattern::unstructured(comm, &[domain])?, ids));
    }
    let decomposition = decompose(args, comm.size())?;
    let extents = decomposition.extents();
    let pattern = decomposition.pattern(comm, Halo::uniform(args.halo))?;
    let mut ids = vec![0u64];
    if let DomainShape::Regular { first, owned, halo } = &pattern.plan().domains[0].1 {
        for (axis, &extent) in extents.iter().enumerate() {
            let cells = (0..owned[axis] + halo[axis].0 + halo[axis].1)
                .map(|at| (first[axis] + at as i64 - halo[axis].0 as i64).rem_euclid(extent as i64) as u64);
            let cells: Vec<u64> = cells.collect();
            ids = ids.iter().flat_map(|id| cells.iter().map(move |at| id * extent as u64 + at)).collect();
        }
    }
    Ok((pattern, ids))
}

fn decompose(args: &HaloArgs, ranks: usize) -> Result<Decomposition, PatternError> {
    let own = &args.grid.0;
    let blocks = blocks(ranks, own.len());
    // A product that does not fit is too large for a grid too, and the grid reports it.
    let extents: Vec<usize> = own.iter().zip(&blocks).map(|(n, blocks)| n.saturating_mul(*blocks)).collect();
    RegularGrid::new(extents).periodic(vec![true; own.len()]).decompose_into(blocks, ranks)
}

/// Bytes of `Cells` for each cell: its number, its offset, and whether it is owned.
const CELL: u128 = 8 + 8 + 1;
/// The same for a mesh, plus the domain's list of cells, the set that `square` builds, and the entries of the directory.
const MESH_CELL: u128 = CELL + 8 + 9 + 24;

/// Refuses a case that does not fit into the memory of this machine. Allocates nothing.
pub(super) fn fits(args: &HaloArgs, ranks: usize) -> Result<(), CommandError> {
    let (cells, levels, list) = match args.mesh {
        Some(_) => (u128::from(args.cells).pow(2), args.levels, MESH_CELL),
        None => {
            let pattern = decompose(args, ranks)?.pattern_of(0, &Halo::uniform(args.halo))?;
            let extents = pattern.domains[0].1.extents();
            (extents.iter().fold(1, |cells: u128, &n| cells.saturating_mul(n as u128)), 1, CELL)
        }
    };
    let cell = u128::from(levels) * u128::from(args.fields) * args.dtype.element().size() as u128 + list;
    let what = "the fields with their halos and the lists of their cells take";
    check_memory(
        args.transport,
        ranks,
        cells.saturating_mul(cell),
        (what, "use fewer cells, levels or fields"),
    )
}

/// The number of blocks along each axis: their product is `ranks`, and the first axis is cut first.
fn blocks(ranks: usize, axes: usize) -> Vec<usize> {
    let mut blocks = vec![1; axes];
    let mut rest = ranks;
    let mut prime = 2;
    while rest > 1 {
        if prime > rest / prime {
            prime = rest;
        }
        while rest.is_multiple_of(prime) {
            rest /= prime;
            if let Some(least) = blocks.iter_mut().min() {
                *least *= prime;
            }
        }
        prime += 1;
    }
    blocks
}

/// A square of `n` by `n` cells on a torus of such squares; its halo is the ring of cells around it.
fn square(n: usize, rank: usize, ranks: usize) -> UnstructuredDomain {
    let shape = blocks(ranks, 2);
    // More squares along the last axis, so that the cells between neighbours are scattered in memory.
    let (rows, columns) = (shape[1], shape[0]);
    let (row, column) = (rank / columns, rank % columns);
    let (height, width) = ((rows * n) as i64, (columns * n) as i64);
    let id = |i: i64, j: i64| {
        let (i, j) = ((row * n) as i64 + i, (column * n) as i64 + j);
        (i.rem_euclid(height) * width + j.rem_euclid(width)) as u64
    };
    let n = n as i64;
    let owned: Vec<u64> = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| id(i, j)).collect();
    let mut seen: HashSet<u64> = owned.iter().copied().collect();
    let ring = (-1..=n).flat_map(|i| (-1..=n).map(move |j| (i, j)));
    let ring = ring.filter(|&(i, j)| i < 0 || j < 0 || i == n || j == n).map(|(i, j)| id(i, j));
    let halo: Vec<u64> = ring.filter(|&id| seen.insert(id)).collect();
    UnstructuredDomain::new(rank as u64, owned, halo)
}

/// A cache line of memory.
#[derive(Default)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "padding")] [AtomicU64; 8]);

/// Memory of the program's own allocator. It starts on a cache line, as shared memory does, `skipped` lines after the start of a page.
fn foreign(layout: &Layout, skipped: usize) -> Result<Field, CommandError> {
    const LINES_OF_PAGE: usize = PAGE / size_of::<Line>();
    let bytes = layout.span().len();
    let count = bytes.div_ceil(size_of::<Line>()) + 2 * LINES_OF_PAGE;
    let mut lines: Vec<Line> = Vec::new();
    lines.try_reserve_exact(count).map_err(|_| {
        CommandError::failed(format!(
            "no memory for a field of {bytes} bytes; give a smaller grid or fewer fields"
        ))
    })?;
    lines.resize_with(count, Line::default);
    let behind_page = lines.as_ptr() as usize % PAGE / size_of::<Line>();
    let first = LINES_OF_PAGE - behind_page + skipped % LINES_OF_PAGE;
    let base = NonNull::from(&lines[first..]).cast();
    // SAFETY: the lines from `first` on have at least the layout's bytes. The layout starts at their address, because its strides are
    // positive. The field holds the lines, and only this rank's case accesses them.
    Ok(unsafe { Field::from_raw(base, layout.clone(), Arc::new(lines)) })
}

const PAGE: usize = 4096;
/// Cache lines between the offsets of two staggered fields: an odd number, so that the offsets of 64 fields differ.
const STAGGER: usize = 9;

/// The field with this number.
fn field(comm: &Communicator, layout: &Layout, memory: Memory, number: usize) -> Result<Field, CommandError> {
    match memory {
        Memory::Shared => Ok(Field::allocate(comm, layout.clone())?),
        Memory::Foreign => foreign(layout, 0),
        Memory::Staggered => foreign(layout, number * STAGGER),
    }
}

/// Which cells of a domain are owned, in row-major order.
fn owned(shape: &DomainShape) -> Vec<bool> {
    match shape {
        DomainShape::Regular { owned, halo, .. } => {
            owned.iter().zip(halo).fold(vec![true], |cells, (&n, &(low, high))| {
                let axis: Vec<bool> = (0..low + n + high).map(|at| (low..low + n).contains(&at)).collect();
                cells.iter().flat_map(|outer| axis.iter().map(move |inner| *outer && *inner)).collect()
            })
        }
        DomainShape::Unstructured { owned, cells, .. } => (0..*cells).map(|cell| cell < *owned).collect(),
    }
}

/// The byte offsets of all cells, in row-major order.
fn offsets(extents: &[usize], strides: &[isize]) -> Vec<isize> {
    extents.iter().zip(strides).fold(vec![0], |cells, (&n, &stride)| {
        cells.iter().flat_map(|outer| (0..n as isize).map(move |at| outer + at * stride)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_spread_over_the_axes() {
        assert_eq!(blocks(2, 3), [2, 1, 1]);
        assert_eq!(blocks(8, 3), [2, 2, 2]);
        assert_eq!(blocks(6, 2), [2, 3]);
        assert_eq!(blocks(1, 3), [1, 1, 1]);
        assert_eq!(blocks(49, 2), [7, 7]);
        assert_eq!(blocks(26, 1), [26]);
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: HaloArgs,
    }

    #[test]
    fn an_exchange_that_moves_nothing_is_reported() {
        let line: Line = clap::Parser::parse_from(["halo", "--grid", "4x4"]);
        let comm = Communicator::single();
        let case = Case::new(&comm, &line.args).unwrap();
        let error = case.verify(&comm, "of a test", || Ok(())).unwrap_err().to_string();
        assert!(
            error.starts_with("rank 0, link of a test, exchange 1: 20 of 36 values are wrong"),
            "{error}"
        );
    }

    #[test]
    fn two_squares_meet_along_two_columns() {
        let domain = square(4, 0, 2);
        let halo = &domain.cells()[16..];
        assert_eq!(halo, [31, 28, 7, 4, 15, 12, 23, 20]);
    }

    #[test]
    fn a_square_alone_has_no_halo_and_one_of_four_a_whole_ring() {
        assert_eq!(square(4, 0, 1).cells().len(), 16);
        assert_eq!(square(4, 3, 4).cells().len(), 16 + 4 * 4 + 4);
    }
}
