//! The memory of fields, and the counts of its guards and exchanges.

use crate::error::{ArrayError, Error};
use crate::lock::{lock, lock_yielding};
use crate::stream::Scheduled;
use halocline_comm::{Host, Segment};
use halocline_device::{Address, Device, Place};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

/// Memory that fields lie in, and its borrow state.
pub(crate) struct Memory {
    pub(crate) segment: Arc<Segment>,
    /// The device, if it is device memory; then the addresses of the segment are the device's.
    pub(crate) device: Option<OnDevice>,
    pub(crate) state: Arc<State>,
    /// The states of earlier memories that share bytes with this one: an exchange that takes this one takes those, too.
    pub(super) overlapping: OnceLock<Box<[Arc<State>]>>,
}

/// The users of some memory.
#[derive(Default)]
pub(crate) struct State {
    /// Upper half: exchanges in flight, at most one. Lower half: guards, with a mark for a writing one. The two exclude each other.
    users: AtomicU64,
    /// Guards of owned cells. They are made while an exchange is in flight, and exclude the next exchange and writing guards.
    of_owned: AtomicU64,
}

/// A guard of host memory.
pub(crate) struct Guarded<'a> {
    state: &'a State,
    writes: bool,
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        self.state.unguard_copy(self.writes);
    }
}

/// Memory of a device.
pub(crate) struct OnDevice {
    pub(crate) device: Device,
    /// Its allocation, with the identity of its first byte.
    pub(crate) place: Place,
    /// The library does not own it: it may be freed at any time.
    pub(crate) foreign: bool,
    /// The objects that exchange it. Some may have been dropped.
    users: Mutex<Vec<Weak<Scheduled>>>,
    /// Held by the object that begins an exchange of it, if it has several users.
    begin: Mutex<()>,
}

impl OnDevice {
    pub(crate) fn new(device: Device, place: Place, foreign: bool) -> Self {
        Self { device, place, foreign, users: Mutex::default(), begin: Mutex::default() }
    }

    /// Its users that still exist. Drop them under no lock: with the last handle an object ends.
    pub(crate) fn users(&self) -> Vec<Arc<Scheduled>> {
        let users = lock(&self.users);
        users.iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps other objects from beginning an exchange of it. Waits for a begin in another thread.
    pub(crate) fn enter(&self, host: &dyn Host) -> MutexGuard<'_, ()> {
        lock_yielding(&self.begin, host)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?})", self.segment)
    }
}

/// The reason that an exchange cannot begin.
pub(crate) enum Blocked {
    /// Another object's exchange of the same memory.
    InFlight,
    /// A guard.
    Borrowed,
}

impl Blocked {
    /// The error of an exchange of the field with this number.
    pub(crate) fn error(self, field: usize) -> Error {
        match self {
            Self::InFlight => Error::Shared { field },
            Self::Borrowed => Error::Borrowed { field },
        }
    }
}

const FLIGHT: u64 = 1 << 32;
pub(super) const WRITER: u64 = 1 << 31;
pub(super) const GUARDS: u64 = FLIGHT - 1;

impl Memory {
    pub(crate) fn new(segment: Arc<Segment>) -> Arc<Self> {
        Arc::new(Self { segment, device: None, state: Arc::default(), overlapping: OnceLock::new() })
    }

    /// Memory of a device: `bytes` from `base`.
    pub(crate) fn on_device(
        device: OnDevice,
        (base, bytes): (Address, usize),
        keepalive: Arc<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        // The host never dereferences a device address. Address 0 means that there are no bytes.
        let base =
            NonNull::new(std::ptr::without_provenance_mut(base as usize)).unwrap_or(NonNull::dangling());
        // SAFETY: the memory is the device's, whose driver gave it or whose owner says so, and `keepalive` keeps it
        // valid. Only devices follow this address.
        let segment = unsafe { Segment::foreign(base, bytes, keepalive) };
        Arc::new(Self { segment, device: Some(device), state: Arc::default(), overlapping: OnceLock::new() })
    }

    /// Registers an object that exchanges it, if it is device memory.
    pub(crate) fn add_user(&self, user: &Arc<Scheduled>) {
        if let Some(home) = &self.device {
            let mut users = lock(&home.users);
            users.retain(|user| user.strong_count() > 0);
            users.push(Arc::downgrade(user));
            drop(users);
            let users = home.users();
            if users.len() > 1 {
                users.iter().for_each(|user| user.shares.store(true, Ordering::Release));
            }
        }
    }

    /// The same, unless the object is registered.
    pub(crate) fn add_user_once(&self, user: &Arc<Scheduled>) {
        let is_it = |known: &Weak<Scheduled>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(user));
        let is_known = |home: &OnDevice| lock(&home.users).iter().any(is_it);
        if !self.device.as_ref().is_none_or(is_known) {
            self.add_user(user);
        }
    }

    /// The states of other memories that share bytes with it: an exchange of this one takes those, too.
    #[inline]
    pub(crate) fn overlapping(&self) -> &[Arc<State>] {
        self.overlapping.get().map_or(&[], |overlapping| overlapping)
    }
}

impl State {
    /// Marks an exchange in flight. Refused while a guard is held, and while another exchange is in flight: two objects
    /// would write the same cells, or one would write what the other sends.
    pub(crate) fn begin_flight(&self) -> Result<(), Blocked> {
        match self.users.compare_exchange(0, FLIGHT, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) if self.is_shown() => {
                self.end_flight();
                Err(Blocked::Borrowed)
            }
            Ok(_) => Ok(()),
            Err(state) if state >= FLIGHT => Err(Blocked::InFlight),
            Err(_) => Err(Blocked::Borrowed),
        }
    }

    /// Undoes [`State::begin_flight`]. Until then no other thread can change the users.
    pub(crate) fn end_flight(&self) {
        self.users.store(0, Ordering::Release);
    }

    /// Adds a guard of owned cells. An exchange holds the memory in flight: users that its end admits come later, and see the guard.
    pub(crate) fn show_owned(&self) {
        self.of_owned.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes [`State::show_owned`].
    pub(crate) fn hide_owned(&self) {
        self.of_owned.fetch_sub(1, Ordering::Release);
    }

    /// Whether a guard of owned cells is held. Call it after `users` has admitted the caller.
    fn is_shown(&self) -> bool {
        self.of_owned.load(Ordering::Acquire) != 0
    }

    /// Whether a guard is held.
    pub(crate) fn is_guarded(&self) -> bool {
        self.users.load(Ordering::Acquire) & GUARDS != 0
    }

    /// Guards device memory, whose exchanges in flight are not counted here.
    pub(crate) fn guard_copy(&self, writes: bool) -> Result<(), Error> {
        let blocked_by = if writes { !0 } else { WRITER };
        self.guard(Self::of_copy(writes), blocked_by)
    }

    /// Takes back one [`State::guard_copy`].
    pub(crate) fn unguard_copy(&self, writes: bool) {
        self.unguard(Self::of_copy(writes));
    }

    /// Guards host memory until the result is dropped: no exchange of it is in flight, and no guard excludes the access.
    pub(crate) fn guarded(&self, writes: bool) -> Result<Guarded<'_>, Error> {
        self.guard(Self::of_copy(writes), if writes { !0 } else { !GUARDS | WRITER })?;
        Ok(Guarded { state: self, writes })
    }

    /// What a guard of device memory adds.
    fn of_copy(writes: bool) -> u64 {
        if writes { WRITER } else { 1 }
    }

    pub(super) fn guard(&self, add: u64, blocked_by: u64) -> Result<(), Error> {
        let take = |state| (state & blocked_by == 0).then_some(state + add);
        match self.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
            Ok(_) if add == WRITER && self.is_shown() => {
                self.unguard(add);
                Err(Error::Array(ArrayError::Borrowed))
            }
            Ok(_) => Ok(()),
            Err(state) if state >= FLIGHT => Err(Error::Array(ArrayError::InFlight)),
            Err(_) => Err(Error::Array(ArrayError::Borrowed)),
        }
    }

    /// Removes a guard that has added so much.
    pub(super) fn unguard(&self, add: u64) {
        self.users.fetch_sub(add, Ordering::Release);
    }
}
