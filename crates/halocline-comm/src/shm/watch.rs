//! The thread that reads this rank's sockets into its inbox and watches the other processes' processes.

use super::arrivals::Disorder;
use super::frame::Frame;
use super::socket::{self, Flushed, Incoming, Outgoing, RING, Read};
use super::{DEAD, ENDED, PRESENT, Shared, control, lock};
use crate::error::CommError;
use crate::inbox::Message;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The data of an epoll event: its kind in the upper half, a rank or the number of a connection in the lower.
const LISTENER: u64 = 1 << 32;
const NUDGE: u64 = 2 << 32;
const PROCESS: u64 = 3 << 32;
const INCOMING: u64 = 4 << 32;
const OUTGOING: u64 = 5 << 32;
const NUMBER: u64 = (1 << 32) - 1;

pub(super) struct Watch {
    shared: Arc<Shared>,
    listener: OwnedFd,
    incoming: HashMap<u64, Incoming>,
    accepted: u64,
    /// The pidfd of each other rank, readable once its process is dead.
    processes: HashMap<usize, OwnedFd>,
    /// Closed to accept and refuse a connection when no other descriptor is left.
    spare: Option<OwnedFd>,
}

/// How often to check, at intervals of [`RETRY`], whether a rank that closed a connection has died.
const LOOKS: u32 = 100;

/// The interval between retries of a send that the kernel refused.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Makes the watch thread write again once the socket accepts more.
pub(super) fn await_writable(epoll: &OwnedFd, to: usize, outgoing: &mut Outgoing) -> Result<(), CommError> {
    if !outgoing.awaited {
        modify(epoll, outgoing, to, EventFlags::OUT)?;
        outgoing.awaited = true;
    }
    Ok(())
}

/// Makes the watch thread notice when the receiver closes the connection.
pub(super) fn await_hang_up(epoll: &OwnedFd, to: usize, outgoing: &Outgoing) -> Result<(), CommError> {
    // An empty set: hang-ups are always reported.
    add(epoll, outgoing.as_fd(), OUTGOING | to as u64, EventFlags::empty())
}

fn modify(epoll: &OwnedFd, outgoing: &Outgoing, to: usize, flags: EventFlags) -> Result<(), CommError> {
    epoll::modify(epoll, outgoing.as_fd(), EventData::new_u64(OUTGOING | to as u64), flags)
        .map_err(|errno| CommError::System { what: "watch a connection", errno })
}

fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>, what: u64, flags: EventFlags) -> Result<(), CommError> {
    epoll::add(epoll, fd, EventData::new_u64(what), flags)
        .map_err(|errno| CommError::System { what: "watch a descriptor", errno })
}

impl Watch {
    /// Starts to watch all other ranks, which have joined.
    pub(super) fn new(shared: Arc<Shared>, listener: OwnedFd) -> Result<Self, CommError> {
        add(&shared.epoll, listener.as_fd(), LISTENER, EventFlags::IN)?;
        add(&shared.epoll, shared.nudge.as_fd(), NUDGE, EventFlags::IN)?;
        let (mut processes, mut gone) = (HashMap::new(), Vec::new());
        for (rank, slot) in shared.control.slots().enumerate().filter(|(rank, _)| *rank != shared.rank) {
            match slot.pid().map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
                Some(Ok(process_fd)) => {
                    add(&shared.epoll, process_fd.as_fd(), PROCESS | rank as u64, EventFlags::IN)?;
                    processes.insert(rank, process_fd);
                }
                None | Some(Err(Errno::SRCH)) => gone.push(rank),
                Some(Err(errno)) => return Err(CommError::System { what: "watch a peer's process", errno }),
            }
        }
        let spare = shared.nudge.try_clone().ok();
        let mut watch = Self { shared, listener, incoming: HashMap::new(), accepted: 0, processes, spare };
        // Some ranks may have left or died before this one got here.
        watch.report_deaths();
        gone.into_iter().for_each(|rank| watch.died(rank));
        Ok(watch)
    }

    /// Runs until the transport is dropped.
    pub(super) fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            events.clear();
            let retries = std::mem::take(&mut *lock(&self.shared.retries));
            retries.into_iter().for_each(|to| self.write(to, false));
            let timeout = (!lock(&self.shared.retries).is_empty()).then_some(RETRY);
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, buffer, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    return tracing::error!(%error, "the shm transport cannot wait for events any more");
                }
            }
            for event in &events {
                let (what, flags) = (event.data.u64(), event.flags);
                let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                self.handle(what & !NUMBER, what & NUMBER, hung_up);
            }
        }
    }

    fn handle(&mut self, kind: u64, number: u64, hung_up: bool) {
        match kind {
            LISTENER => self.accept(),
            NUDGE => self.nudged(),
            PROCESS => self.died(number as usize),
            INCOMING => self.read(number),
            OUTGOING => self.write(number as usize, hung_up),
            _ => {}
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // Accepted and closed, or it would wake this thread forever; the sender notices. The kernel needs
                    // a free descriptor even if there is no connection.
                    let refused = rustix::net::accept_with(&self.listener, flags);
                    let is_empty = matches!(refused, Err(Errno::AGAIN));
                    drop(refused);
                    self.spare = self.shared.nudge.try_clone().ok();
                    if is_empty {
                        return;
                    }
                    tracing::error!("rank {}: no descriptor is left for a connection", self.shared.rank);
                    continue;
                }
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                    // Another thread took the freed descriptor: connections cannot even be refused.
                    // Deleted, or it would wake this thread forever.
                    let _ = epoll::delete(&self.shared.epoll, &self.listener);
                    return self
                        .shared
                        .stop_receiving(CommError::System { what: "accept a connection", errno });
                }
                Err(_) => return,
            };
            // Nothing is read from a process that is no rank.
            if let Err(why) = admit(&self.shared, socket.as_fd()) {
                tracing::warn!("rank {}: a connection was refused: {why}", self.shared.rank);
                continue;
            }
            let connection = Incoming::new(socket);
            self.accepted = (self.accepted + 1) & NUMBER;
            match add(&self.shared.epoll, connection.as_fd(), INCOMING | self.accepted, EventFlags::IN) {
                Ok(()) => {
                    self.incoming.insert(self.accepted, connection);
                }
                Err(error) => tracing::error!(%error, "a connection was refused"),
            }
        }
    }

    fn read(&mut self, number: u64) {
        let Some(connection) = self.incoming.get_mut(&number) else { return };
        let process = connection.process();
        let shared = &*self.shared;
        let outcome = connection.read(|peer, frame, fds| match *peer {
            Some(from) if frame.tag == RING => {
                attach(shared, from, &frame, fds);
                Ok(())
            }
            Some(from) => receive(shared, from, frame, fds).map_err(super::with_remedy),
            None => {
                *peer = Some(greet(shared, &frame, process)?);
                Ok(())
            }
        });
        match outcome {
            Ok(Read::Open) => return,
            Ok(Read::Closed) => {}
            Err(why) => match connection.peer {
                Some(peer) => shared.lose(peer, &why),
                None => tracing::warn!("rank {}: a connection was dropped: {why}", shared.rank),
            },
        }
        // Closing the descriptor removes it from the epoll.
        self.incoming.remove(&number);
    }

    fn write(&mut self, to: usize, hung_up: bool) {
        let Some(outgoing) = lock(&self.shared.outgoing).get(&to).cloned() else { return };
        let mut outgoing = lock(&outgoing);
        if hung_up {
            outgoing.hung_up();
        }
        let flushed = outgoing.flush();
        if let Flushed::Broken = flushed {
            // It may have been deleted before.
            let _ = epoll::delete(&self.shared.epoll, outgoing.as_fd());
            outgoing.looks += 1;
            let looks = outgoing.looks;
            drop(outgoing);
            return self.hung_up(to, looks);
        }
        let mut done = Ok(());
        if outgoing.awaited && !matches!(flushed, Flushed::Blocked) {
            outgoing.awaited = false;
            done = modify(&self.shared.epoll, &outgoing, to, EventFlags::empty());
        }
        let done = done.and_then(|()| self.shared.flushed(to, &mut outgoing, flushed));
        if let Err(error) = done {
            self.shared.lose(to, &error.to_string());
        }
    }

    /// A rank has closed the connection. A dying process does so a little before its pidfd becomes readable, and
    /// a rank that leaves has announced that before; a rank that does neither has refused the connection.
    fn hung_up(&mut self, to: usize, looks: u32) {
        if !self.shared.is_present(to) || self.shared.has_left(to) {
            return;
        }
        if looks < LOOKS {
            lock(&self.shared.retries).insert(to);
        } else {
            self.drain();
            self.shared.lose(to, "it has closed the connection");
        }
    }

    /// Reads everything that has been sent to this rank.
    fn drain(&mut self) {
        self.accept();
        let numbers: Vec<u64> = self.incoming.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.read(number));
        self.shared.poll_rings();
    }

    /// Another thread saw that a rank has left or ended: all its messages are in the sockets now.
    fn nudged(&mut self) {
        let mut count = [0; 8];
        // Empty if two nudges were merged.
        let _ = rustix::io::read(&self.shared.nudge, &mut count);
        let shared = &*self.shared;
        let states = shared.states.iter().map(|state| state.load(Ordering::Acquire));
        let found = shared.control.slots().map(control::Slot::departure).zip(states).enumerate();
        let news = found.filter(|(rank, (departure, state))| *rank != shared.rank && departure > state);
        let news: Vec<(usize, u8)> = news.map(|(rank, (departure, _))| (rank, departure)).collect();
        if !news.is_empty() {
            self.report_deaths();
            self.drain();
            news.into_iter().for_each(|(rank, departure)| self.shared.depart(rank, departure));
        }
    }

    /// Reports ranks that have died: a rank may leave because another has died, which must show first. The pidfd of that rank is
    /// readable now, even if its event is still to come.
    fn report_deaths(&mut self) {
        let watched: Vec<(usize, &OwnedFd)> =
            self.processes.iter().map(|(rank, process_fd)| (*rank, process_fd)).collect();
        let mut polled: Vec<PollFd<'_>> =
            watched.iter().map(|(_, process_fd)| PollFd::new(*process_fd, PollFlags::IN)).collect();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If it fails, the events report the same a little later.
        let _ = rustix::event::poll(&mut polled, Some(&now));
        let ended = watched.iter().zip(&polled).filter(|(_, process_fd)| !process_fd.revents().is_empty());
        let ended = ended.map(|((rank, _), _)| *rank).filter(|&rank| !self.shared.has_left(rank));
        let dead: Vec<usize> = ended.collect();
        dead.into_iter().for_each(|rank| self.died(rank));
    }

    fn died(&mut self, rank: usize) {
        // Its pidfd stays readable: closing it removes it from the epoll.
        self.processes.remove(&rank);
        let left = self.shared.has_left(rank);
        if left {
            self.report_deaths();
        }
        self.drain();
        self.shared.depart(rank, if left { ENDED } else { DEAD });
    }
}

impl Shared {
    /// Whether a rank has announced that it leaves.
    fn has_left(&self, rank: usize) -> bool {
        self.control.slot(rank).is_some_and(super::control::Slot::has_left)
    }

    pub(super) fn is_present(&self, rank: usize) -> bool {
        self.states.get(rank).is_some_and(|state| state.load(Ordering::Acquire) == PRESENT)
    }
}

/// Admits only processes of this user that are ranks of this job.
fn admit(shared: &Shared, socket: BorrowedFd<'_>) -> Result<(), String> {
    let who = socket::peer_of(socket).map_err(|errno| format!("its process is unknown: {errno}"))?;
    match shared.control.slots().any(|slot| slot.pid() == Some(who)) {
        true => Ok(()),
        false => Err(format!("process {who} is no rank of this job")),
    }
}

/// The rank of a process, by its first frame.
fn greet(shared: &Shared, frame: &Frame, process: rustix::io::Result<Pid>) -> Result<usize, String> {
    let process = process.map_err(|errno| format!("its process is unknown: {errno}"))?;
    let rank = socket::check_hello(frame, &shared.token)
        .ok_or("its first frame does not name a rank of this job")?;
    match shared.control.slot(rank).and_then(super::control::Slot::pid) {
        Some(expected) if expected == process => Ok(rank),
        expected => Err(format!("process {process} claims to be rank {rank}, which is process {expected:?}")),
    }
}

/// Begins to read the ring of a rank. If it cannot be mapped, the rank goes on to use the socket.
fn attach(shared: &Shared, from: usize, frame: &Frame, fds: Vec<OwnedFd>) {
    let Some((&announced, fd)) = frame.segments.first().zip(fds.into_iter().next()) else {
        return tracing::warn!("rank {}: the message ring of rank {from} is missing", shared.rank);
    };
    match shared.import(from, announced, fd) {
        Ok(memory) => shared.in_order(from, shared.arrivals[from].attach(memory)),
        Err(error) => tracing::warn!("rank {}: the message ring of rank {from}: {error}", shared.rank),
    }
}

/// Puts a message into the inbox, with its memory up to the first segment that cannot be received or mapped, after those of the ring
/// that were sent before it.
fn receive(shared: &Shared, from: usize, frame: Frame, fds: Vec<OwnedFd>) -> Result<(), Disorder> {
    // The kernel drops the last descriptors of a message if the process may open no more.
    let is_cut = fds.len() < frame.segments.len();
    let what = "receive the descriptors of a peer's memory";
    let mut missing = is_cut.then_some(CommError::System { what, errno: Errno::MFILE });
    let mut segments = Vec::with_capacity(fds.len());
    for (announced, fd) in frame.segments.into_iter().zip(fds) {
        match shared.import(from, announced, fd) {
            Ok(segment) => segments.push(segment),
            Err(error) => {
                missing = Some(error);
                break;
            }
        }
    }
    if let Some(error) = &missing {
        tracing::error!("rank {}: memory of rank {from} is missing: {error}", shared.rank);
    }
    let (source, tag, payload) = (shared.name_of(from), frame.tag, frame.payload);
    let own = || {
        shared.inbox.push(Message { source, tag, payload, segments, missing, ..Message::default() });
        shared.own_bell().delivered(&*shared.host, tag.is_news());
    };
    shared.arrivals[from].arrived(frame.sequence, own, |tag, payload| shared.deliver(from, tag, payload))
}
