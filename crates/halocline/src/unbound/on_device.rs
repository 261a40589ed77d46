//! Fields of a device in the unbound form.

use super::{Described, numbers, overlap};
use crate::bind::{Local, given};
use crate::error::Error;
use crate::exchange::{HaloExchange, Pending};
use crate::field::{Field, Memory, Number};
use crate::lifecycle::Engine;
use crate::lock::lock;
use crate::options::BindOptions;
use crate::pattern::Pattern;
use crate::stream::{Given, Layouts, Scheduled, Work};
use crate::trace;
use halocline_comm::Communicator;
use halocline_device::{Address, Base, Device, Stream};
use std::sync::{Arc, Mutex};

/// The links of fields of a device.
pub(super) struct OnDevice {
    device: Device,
    /// The ids of the patterns.
    patterns: Vec<u64>,
    /// The object that has the links.
    pub(super) halo: HaloExchange,
    /// Layouts of recent fields, the latest last.
    known: Mutex<Vec<Known>>,
}

/// Layouts of a recent exchange.
struct Known {
    /// The pattern and the number of each field in their latest exchange.
    last: Vec<(u64, Number)>,
    fields: Vec<(Described, u64)>,
    layouts: Arc<Layouts>,
}

impl OnDevice {
    /// Collective.
    pub(super) fn new(
        comm: &Communicator,
        patterns: &[&Pattern],
        device: &Device,
        options: &BindOptions,
    ) -> Result<Self, Error> {
        let halo = given::bind(comm, patterns, device, options)?;
        let patterns = patterns.iter().map(|pattern| pattern.id()).collect();
        Ok(Self { device: device.clone(), patterns, halo, known: Mutex::default() })
    }

    /// All ranks have a device, and each has a device engine.
    fn scheduled(&self) -> Result<&Arc<Scheduled>, Error> {
        self.halo.scheduled.as_ref().ok_or(Error::NotDriven)
    }

    /// Fails if the streams, or those of the bind, are under capture: a graph holds no host fields.
    pub(super) fn refuse_capture(&self, streams: Option<&[&Stream]>) -> Result<(), Error> {
        let scheduled = self.scheduled()?;
        let capture = match streams {
            Some(streams) => scheduled.capture_of(streams.iter().copied())?,
            None => scheduled.capture_of(scheduled.producers.iter().map(|stream| &**stream))?,
        };
        let why = "it has fields in host memory, too";
        capture.map_or(Ok(()), |_| Err(Error::NotCapturable { why }))
    }

    /// Checks fields, and finds or makes their copy tables.
    pub(super) fn prepare(&self, fields: &[(&Pattern, &Field)]) -> Result<Arc<Given>, Error> {
        Ok(Arc::new(self.given(self.scheduled()?, fields)?))
    }

    /// Begins an exchange of fields, after the streams or after those of the bind.
    pub(super) fn begin(&self, given: Arc<Given>, streams: Option<&[&Stream]>) -> Result<Pending, Error> {
        let scheduled = self.scheduled()?;
        for (memory, _) in &given.memories {
            memory.add_user_once(scheduled);
        }
        let life = scheduled.life();
        let _span = trace::exchange(&life.comm, &life.name, scheduled.epoch() + 1);
        let (work, object) = (Work::Given(&given), self.halo.object());
        let epoch = match streams {
            Some(streams) => scheduled.begin((work, object), streams.iter().copied())?,
            None => scheduled.begin((work, object), scheduled.producers.iter().map(|stream| &**stream))?,
        };
        Ok(self.halo.pending_of(epoch))
    }

    fn given(&self, scheduled: &Scheduled, fields: &[(&Pattern, &Field)]) -> Result<Given, Error> {
        let layouts = self.layouts(scheduled, fields)?;
        let bases = fields.iter().map(|(_, field)| field.base().addr().get() as Address).collect();
        let mut memories: Vec<(Arc<Memory>, usize)> = Vec::with_capacity(fields.len());
        for (at, (_, field)) in fields.iter().enumerate() {
            if !memories.iter().any(|(memory, _)| Arc::ptr_eq(memory, &field.memory)) {
                memories.push((Arc::clone(&field.memory), at));
            }
        }
        Ok(Given { layouts, bases, memories })
    }

    /// The work of these fields: remembered, or made now.
    fn layouts(&self, scheduled: &Scheduled, fields: &[(&Pattern, &Field)]) -> Result<Arc<Layouts>, Error> {
        let mut known = lock(&self.known);
        // Most programs exchange the same fields again.
        if let Some(last) = known.last().filter(|known| numbers(fields).eq(known.last.iter().copied())) {
            return Ok(Arc::clone(&last.layouts));
        }
        self.check(fields)?;
        let is_known = |known: &Known| {
            known.fields.len() == fields.len()
                && known.fields.iter().enumerate().all(|(at, (described, residue))| {
                    *residue == residue_of(fields[at].1) && described.is(fields, at)
                })
        };
        // Shared bytes of different memories are not part of what is remembered.
        let may_be_known = !overlap(fields);
        if let Some(at) = known.iter().rposition(|known| may_be_known && is_known(known)) {
            let last = known.len() - 1;
            known[at..].rotate_left(usize::from(at < last));
            known[last].last.clear();
            known[last].last.extend(numbers(fields));
            return Ok(Arc::clone(&known[last].layouts));
        }
        let local = Local::new(&scheduled.comm, fields)?;
        let Some(unbound) = &scheduled.unbound else { return Err(Error::NotDriven) };
        let slots = unbound.slots();
        let layouts = Arc::new(given::layouts(scheduled, unbound, &local)?);
        if unbound.slots() != slots {
            // Those of smaller slots.
            known.clear();
        }
        if may_be_known {
            if known.len() == super::PatternLinks::REMEMBERED {
                known.remove(0);
            }
            let described =
                (0..fields.len()).map(|at| (Described::new(fields, at), residue_of(fields[at].1)));
            let (last, fields) = (numbers(fields).collect(), described.collect());
            known.push(Known { last, fields, layouts: Arc::clone(&layouts) });
        }
        Ok(layouts)
    }

    /// Refuses fields of other patterns and of other devices, and more than a launch can take.
    fn check(&self, fields: &[(&Pattern, &Field)]) -> Result<(), Error> {
        if fields.len() > Base::MOST {
            return Err(Error::TooManyFields { fields: fields.len(), most: Base::MOST });
        }
        for (field, (pattern, given)) in fields.iter().enumerate() {
            if !self.patterns.contains(&pattern.id()) {
                return Err(Error::NoSuchPattern { field, patterns: self.patterns.len() });
            }
            let found = given.memory.device.as_ref().map(|home| &home.device);
            if let Some(found) = found.filter(|found| **found != self.device) {
                let (device, links) = (found.ordinal(), self.device.ordinal());
                return Err(Error::OtherDevice { field, device, links });
            }
        }
        Ok(())
    }
}

/// What tables depend on of the address of a field.
fn residue_of(field: &Field) -> u64 {
    field.base().addr().get() as u64 % Base::LINE
}
