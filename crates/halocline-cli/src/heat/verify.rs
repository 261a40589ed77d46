//! The comparison with a run on one rank.

use super::domain::Case;
use super::levels::{Host, Levels};
use super::simulation::Heat;
use super::stencil::{Block, Real};
use crate::error::CommandError;
use halocline::{Communicator, LinkChoice, PatternError, RegularGrid};

/// What the check has found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// It was made.
    Compared {
        /// Largest difference of any temperature; not finite if some value is not a number.
        max_abs_diff: f64,
        /// Values whose bits differ.
        different: u64,
    },
    /// It was not made, and why.
    Skipped(String),
}

impl Verdict {
    /// Whether nothing wrong was found.
    pub(super) fn is_good(&self) -> bool {
        match self {
            Self::Compared { max_abs_diff, different } => *max_abs_diff == 0.0 && *different == 0,
            Self::Skipped(_) => true,
        }
    }
}

/// Bytes that a rank sends in one message, about.
const MESSAGE: usize = 3 << 20;

/// All cells of each field in the grid's order, on rank 0; nothing elsewhere. Collective.
pub(super) fn gather<L: Levels>(
    comm: &Communicator,
    case: &Case,
    heat: &Heat<L>,
) -> Result<Vec<Vec<L::Real>>, CommandError> {
    let [nx, ny, nz] = case.extents();
    let places: Vec<Place> = match comm.rank() {
        0 => (0..comm.size()).map(|rank| Place::new(case, rank)).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    // Rank 0 has a block of the most rows, and no row is longer than the grid.
    let rows = (MESSAGE / (size_of::<f64>() * nz)).max(1);
    let rounds = Place::new(case, 0)?.rows().div_ceil(rows);
    let own = heat.domain.owned.extent(2);
    let mut gathered = Vec::new();
    for field in 0..heat.fields() {
        let mut mine = Vec::new();
        heat.owned_rows(field, |row| mine.extend_from_slice(row))?;
        if comm.rank() != 0 {
            let mut rest = mine.chunks(rows * own);
            for _ in 0..rounds {
                let message = rest.next().map(|values| (0, bytes(values)));
                comm.sparse_exchange(message.into_iter().collect())?;
            }
            continue;
        }
        // What does not come shows in the comparison.
        let mut all = vec![L::Real::nearest(f64::NAN); nx * ny * nz];
        for (row, values) in mine.chunks_exact(own).enumerate() {
            places[0].row(&mut all, [ny, nz], row).copy_from_slice(values);
        }
        for round in 0..rounds {
            for (rank, bytes) in comm.sparse_exchange(Vec::new())? {
                let mut values =
                    bytes.as_chunks().0.iter().map(|&raw| L::Real::nearest(f64::from_le_bytes(raw)));
                for row in (round * rows..places[rank].rows()).take(rows) {
                    let cells = places[rank].row(&mut all, [ny, nz], row);
                    cells.iter_mut().zip(&mut values).for_each(|(to, from)| *to = from);
                }
            }
        }
        gathered.push(all);
    }
    Ok(gathered)
}

/// Values as a message: of 64 bits, from which those of 32 come back as they were.
fn bytes<T: Real>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|&value| Into::<f64>::into(value).to_le_bytes()).collect()
}

/// Where the owned cells of a rank lie in the grid.
struct Place(Block);

impl Place {
    fn new(case: &Case, rank: usize) -> Result<Self, PatternError> {
        let domain = case.domain(rank)?;
        let first = domain.first_owned();
        let high = std::array::from_fn(|axis| first[axis] + domain.owned.extent(axis));
        Ok(Self(Block { low: first, high }))
    }

    fn rows(&self) -> usize {
        self.0.extent(0) * self.0.extent(1)
    }

    /// Row `row` of the block, in an array of the whole grid.
    fn row<'a, T>(&self, all: &'a mut [T], [ny, nz]: [usize; 2], row: usize) -> &'a mut [T] {
        let (x, y) = (row / self.0.extent(1), row % self.0.extent(1));
        let at = ((self.0.low[0] + x) * ny + self.0.low[1] + y) * nz;
        &mut all[at + self.0.low[2]..at + self.0.high[2]]
    }
}

/// Runs all steps again on one rank of the host, field by field: an exchange each step, nothing overlapped. `found`
/// are the fields of the run on several ranks.
pub(super) fn verify<T: Real>(
    case: &Case,
    steps: usize,
    found: &[Vec<T>],
    mut tick: impl FnMut(usize),
) -> Result<Verdict, CommandError> {
    let grid = RegularGrid::new(case.extents()).periodic(case.periodic);
    let alone = Case { decomposition: grid.decompose(1)?, periodic: case.periodic, width: 1 };
    let (mut max_abs_diff, mut different) = (0f64, 0);
    for (field, found) in (0..).zip(found) {
        let comm = Communicator::single();
        let mut heat = Heat::<Host<T>>::new(&comm, &alone, field..field + 1)?;
        let halo = heat.bind(&comm, LinkChoice::Auto)?;
        heat.run(&halo, steps, false, &mut tick)?;
        let mut rows = found.chunks_exact(heat.domain.owned.extent(2));
        heat.owned_rows(0, |due| {
            for (&due, &found) in due.iter().zip(rows.next().unwrap_or_default()) {
                let (due, found): (f64, f64) = (due.into(), found.into());
                let nan = due.is_nan() || found.is_nan();
                max_abs_diff = max_abs_diff.max(if nan { f64::INFINITY } else { (due - found).abs() });
                different += u64::from(due.to_bits() != found.to_bits());
            }
        })?;
    }
    Ok(Verdict::Compared { max_abs_diff, different })
}
