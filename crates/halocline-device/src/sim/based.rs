//! Copy tables whose launches give bases: the work is kept as it was uploaded, and each launch has a table of its own.

use super::memory::Spot;
use crate::driver::{Address, Announced, Base, Signal, Slot, TablePart, TableSpec};
use halocline_plan::copy::CopyOp;

/// Such a table.
#[derive(Debug)]
pub(super) struct Based {
    pub(super) device: u32,
    /// One for all epochs, or those for even and odd epochs.
    pub(super) works: Vec<BasedWork>,
}

/// The work of such a table.
#[derive(Debug)]
pub(super) struct BasedWork {
    parts: Vec<OwnedPart>,
    sources: Vec<Address>,
    targets: Vec<Address>,
    guard: Option<Address>,
    bases: Vec<Base>,
}

#[derive(Debug)]
struct OwnedPart {
    waits: Vec<Signal>,
    ops: Vec<CopyOp>,
    raises: Vec<Address>,
    early: bool,
    slot: Slot,
    announced: Option<Announced>,
}

impl OwnedPart {
    fn part(&self) -> TablePart<'_> {
        let Self { waits, ops, raises, early, slot, announced } = self;
        let (early, slot, announced) = (*early, *slot, *announced);
        TablePart { waits, ops, raises, early, slot, announced, ..TablePart::default() }
    }
}

impl BasedWork {
    /// Whether the launches of a table give bases, or receivers announce them.
    pub(super) fn is(spec: &TableSpec<'_>) -> bool {
        !spec.bases.is_empty() || spec.parts.iter().any(|part| part.announced.is_some())
    }

    pub(super) fn new(spec: &TableSpec<'_>) -> Self {
        let own = |part: &TablePart<'_>| OwnedPart {
            waits: part.waits.to_vec(),
            ops: part.ops.to_vec(),
            raises: part.raises.to_vec(),
            early: part.early,
            slot: part.slot,
            announced: part.announced,
        };
        Self {
            parts: spec.parts.iter().map(own).collect(),
            sources: spec.sources.to_vec(),
            targets: spec.targets.to_vec(),
            guard: spec.guard,
            bases: spec.bases.to_vec(),
        }
    }

    /// Whether a launch may give these bases.
    pub(super) fn fits(&self, given: &[Address]) -> bool {
        self.bases.len() == given.len() && self.bases.iter().zip(given).all(|(base, &at)| base.fits(at))
    }

    /// The parts that may wait.
    pub(super) fn waiting_parts(&self) -> usize {
        self.parts.iter().filter(|part| !part.waits.is_empty() || part.slot == Slot::Awaited).count()
    }

    /// Calls `with` with the work of a launch, whose bases are at `given`.
    pub(super) fn at<T>(&self, given: &[Address], with: impl FnOnce(&TableSpec<'_>) -> T) -> T {
        let parts: Vec<TablePart<'_>> = self.parts.iter().map(OwnedPart::part).collect();
        let place = |&address: &Address| match Base::of(address) {
            Some((number, _)) if number < self.bases.len() => {
                address.wrapping_add(self.bases[number].added(number, given[number]))
            }
            _ => address,
        };
        let sources: Vec<Address> = self.sources.iter().map(place).collect();
        let targets: Vec<Address> = self.targets.iter().map(place).collect();
        let (guard, bases) = (self.guard, &self.bases[..]);
        with(&TableSpec { parts: &parts, sources: &sources, targets: &targets, guard, bases })
    }
}

/// The region of bytes of a message whose base the receiver announces.
const MESSAGE: usize = usize::MAX;

impl Spot {
    /// Bytes that count from the announced base; `None` for other addresses.
    pub(super) fn of_message(address: Address) -> Option<Self> {
        let (_, distance) = Base::of(address)?;
        Some(Self { region: MESSAGE, offset: distance as usize, via: None })
    }

    /// The bytes themselves, once the base is known.
    pub(super) fn from(self, base: Option<Self>) -> Self {
        match base {
            Some(base) if self.region == MESSAGE => Self { offset: base.offset + self.offset, ..base },
            _ => self,
        }
    }
}
