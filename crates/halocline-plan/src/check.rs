//! Checks a pattern of any origin before bytes move by it.

use crate::error::PatternError;
use crate::region::{Region, RegionIndex, Span};
use crate::{BoxCells, Cells, DomainShape, PatternPlan, Run, Transfer};

impl PatternPlan {
    /// Checks that the transfers can run in any order and leave owned cells unchanged. Every domain
    /// of this rank that a transfer names exists. Source and target have equally many cells (the
    /// same extents for boxes). Sources are owned cells. Targets are halo cells, and no two
    /// transfers fill the same one.
    ///
    /// The shape of an unstructured domain does not state which of its cells are owned. There, no
    /// cell may be both sent and received.
    ///
    /// Other ranks check the cells of their own domains. Takes time n log n in the number of boxes
    /// or runs of a domain.
    pub fn check(&self) -> Result<(), PatternError> {
        self.check_for(Fills::Halos)
    }

    /// As [`PatternPlan::check`], for the pattern of a redistribution: targets are owned cells, in
    /// domains that send nothing.
    pub fn check_redistribution(&self) -> Result<(), PatternError> {
        self.check_for(Fills::OwnedCells)
    }

    /// As [`PatternPlan::check`], for a pattern of patches: targets may also be copies among the owned cells, which are
    /// not sent.
    pub fn check_patches(&self) -> Result<(), PatternError> {
        self.check_for(Fills::HalosAndCopies)
    }

    fn check_for(&self, fills: Fills) -> Result<(), PatternError> {
        for pair in self.domains.windows(2) {
            if pair[0].0 >= pair[1].0 {
                return Err(PatternError::DomainOrder { domain: pair[1].0 });
            }
        }
        let mut uses = vec![Uses::default(); self.domains.len()];
        for peer in &self.peers {
            for transfer in &peer.sends {
                uses[self.position(transfer, transfer.from)?].sources.push(&transfer.source);
                check_equal(transfer)?;
            }
            for transfer in &peer.receives {
                uses[self.position(transfer, transfer.to)?].targets.push(&transfer.target);
                check_equal(transfer)?;
            }
        }
        for transfer in &self.local {
            uses[self.position(transfer, transfer.from)?].sources.push(&transfer.source);
            uses[self.position(transfer, transfer.to)?].targets.push(&transfer.target);
            check_equal(transfer)?;
        }
        for ((domain, shape), uses) in self.domains.iter().zip(&uses) {
            match shape {
                DomainShape::Regular { owned, halo, .. } if owned.len() == halo.len() => {
                    RegularDomain::new(*domain, shape, owned, halo).check(uses, fills)?;
                }
                DomainShape::Regular { owned, halo, .. } => {
                    let (given, axes) = (halo.len(), owned.len());
                    return Err(PatternError::AxisCount { what: "halo widths", given, axes });
                }
                DomainShape::Unstructured { cells, .. } => check_runs(*domain, shape, *cells, uses)?,
            }
        }
        Ok(())
    }

    fn position(&self, transfer: &Transfer, domain: u64) -> Result<usize, PatternError> {
        self.domains.binary_search_by_key(&domain, |(id, _)| *id).map_err(|_| PatternError::UnknownDomain {
            from: transfer.from,
            to: transfer.to,
            missing: domain,
        })
    }
}

/// Which cells the transfers fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fills {
    Halos,
    HalosAndCopies,
    OwnedCells,
}

/// All cells of one domain that transfers name.
#[derive(Debug, Clone, Default)]
struct Uses<'a> {
    sources: Vec<&'a Cells>,
    targets: Vec<&'a Cells>,
}

fn check_equal(transfer: &Transfer) -> Result<(), PatternError> {
    let equal = match (&transfer.source, &transfer.target) {
        (Cells::Box(source), Cells::Box(target)) if transfer.map.swapped => {
            source.extent.len() == 2 && source.extent.iter().rev().eq(&target.extent)
        }
        (Cells::Box(source), Cells::Box(target)) => source.extent == target.extent,
        (Cells::Runs(source), Cells::Runs(target)) => run_cells(source) == run_cells(target),
        _ => false,
    };
    match equal {
        true => Ok(()),
        false => Err(PatternError::UnequalCells {
            from: transfer.from,
            to: transfer.to,
            source_cells: describe(&transfer.source),
            target_cells: describe(&transfer.target),
        }),
    }
}

fn run_cells(runs: &[Run]) -> u128 {
    runs.iter().map(|run| u128::from(run.len)).sum()
}

fn describe(cells: &Cells) -> String {
    match cells {
        Cells::Box(BoxCells { low, extent }) => format!("a box of {extent:?} cells from {low:?}"),
        Cells::Runs(runs) => format!("{} cells in {} runs", run_cells(runs), runs.len()),
    }
}

fn wrong_cells(domain: u64, cells: &Cells, shape: &DomainShape) -> PatternError {
    let shape = match shape {
        DomainShape::Regular { owned, halo, .. } => format!("{owned:?} cells with halo widths {halo:?}"),
        DomainShape::Unstructured { cells, .. } => format!("a list of {cells} cells"),
    };
    PatternError::WrongCells { domain, cells: describe(cells), shape }
}

/// The boxes of a regular domain, in coordinates from its first owned cell.
struct RegularDomain<'a> {
    domain: u64,
    shape: &'a DomainShape,
    owned: Region,
    with_halo: Region,
}

impl<'a> RegularDomain<'a> {
    fn new(domain: u64, shape: &'a DomainShape, owned: &[usize], halo: &[(usize, usize)]) -> Self {
        // A shape too large for coordinates is clipped: nothing beyond can be addressed.
        let coordinate = |cells: usize| i64::try_from(cells).unwrap_or(i64::MAX);
        let inner = owned.iter().map(|&owned| Span::new(0, coordinate(owned)));
        let outer = owned.iter().zip(halo).map(|(&owned, &(low, high))| {
            Span::new(-coordinate(low), coordinate(owned.saturating_add(high)))
        });
        Self { domain, shape, owned: Region(inner.collect()), with_halo: Region(outer.collect()) }
    }

    fn check(&self, uses: &Uses, fills: Fills) -> Result<(), PatternError> {
        let domain = self.domain;
        for source in &uses.sources {
            if let Some(cell) = self.region(source)?.cell_outside(&self.owned) {
                return Err(PatternError::SendsHalo { domain, cell: format!("{cell:?}") });
            }
        }
        let mut targets = Vec::with_capacity(uses.targets.len());
        for target in &uses.targets {
            let target = self.region(target)?;
            let may_be_owned = match fills {
                Fills::Halos => false,
                Fills::HalosAndCopies => true,
                Fills::OwnedCells => uses.sources.is_empty(),
            };
            if target.meets(&self.owned) && !may_be_owned {
                let cell = format!("{:?}", target.common_cell(&self.owned));
                return Err(PatternError::ReceivesOwned { domain, cell });
            }
            if let Some(cell) = target.cell_outside(&self.owned).filter(|_| fills == Fills::OwnedCells) {
                return Err(PatternError::OutsideDomain { domain, cell: format!("{cell:?}") });
            }
            targets.push(target);
        }
        let targets = RegionIndex::new(targets);
        if let Some((_, _, cell)) = targets.overlap() {
            return Err(PatternError::ReceivedTwice { domain, cell: format!("{cell:?}") });
        }
        for source in &uses.sources {
            let source = self.region(source)?;
            if let Some(target) = targets.meeting(&source).next() {
                let cell = format!("{:?}", source.common_cell(&targets.regions()[target]));
                return Err(PatternError::SendsHalo { domain, cell });
            }
        }
        Ok(())
    }

    fn region(&self, cells: &Cells) -> Result<Region, PatternError> {
        let Cells::Box(BoxCells { low, extent }) = cells else {
            return Err(wrong_cells(self.domain, cells, self.shape));
        };
        let axes = self.owned.0.len();
        if low.len() != axes || extent.len() != axes || extent.contains(&0) {
            return Err(wrong_cells(self.domain, cells, self.shape));
        }
        let end = |(low, extent): (&i64, &usize)| low.saturating_add_unsigned(*extent as u64);
        let spans = low.iter().zip(extent).map(|axis| Span::new(*axis.0, end(axis)));
        let region = Region(spans.collect());
        match region.cell_outside(&self.with_halo) {
            None => Ok(region),
            Some(cell) => Err(PatternError::OutsideDomain { domain: self.domain, cell: format!("{cell:?}") }),
        }
    }
}

fn check_runs(domain: u64, shape: &DomainShape, cells: usize, uses: &Uses) -> Result<(), PatternError> {
    let sources = sorted_spans(domain, shape, cells, &uses.sources)?;
    let targets = sorted_spans(domain, shape, cells, &uses.targets)?;
    for pair in targets.windows(2) {
        if pair[1].start < pair[0].end {
            return Err(PatternError::ReceivedTwice { domain, cell: pair[1].start.to_string() });
        }
    }
    // Targets are disjoint, so their ends ascend too.
    let mut targets = targets.into_iter().peekable();
    for source in sources {
        while targets.next_if(|target| target.end <= source.start).is_some() {}
        if let Some(both) = targets.peek().map(|target| target.intersection(source)).filter(|s| !s.is_empty())
        {
            return Err(PatternError::SendsHalo { domain, cell: both.start.to_string() });
        }
    }
    Ok(())
}

/// All runs, ascending, of a domain with that many cells.
fn sorted_spans(
    domain: u64,
    shape: &DomainShape,
    cells: usize,
    lists: &[&Cells],
) -> Result<Vec<Span>, PatternError> {
    let mut spans = Vec::new();
    for list in lists {
        let Cells::Runs(runs) = list else {
            return Err(wrong_cells(domain, list, shape));
        };
        for run in runs.iter() {
            if run.len == 0 {
                return Err(wrong_cells(domain, list, shape));
            }
            let span = Span::new(run.start.into(), i64::from(run.start) + i64::from(run.len));
            if span.end as usize > cells {
                let cell = span.start.max(cells as i64).to_string();
                return Err(PatternError::OutsideDomain { domain, cell });
            }
            spans.push(span);
        }
    }
    spans.sort_unstable();
    Ok(spans)
}
