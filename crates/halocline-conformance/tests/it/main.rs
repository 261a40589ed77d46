//! The tests of whole jobs that are no cases of the suite, in one program: it links once.

mod calls;
mod device_guards;
mod faults;
mod flags;
mod hazards;
mod holding;
mod leave;
mod mapped;
mod messages;
mod mpi;
mod narrowed;
mod queues;
mod random;
mod refused;
mod scheduled;
mod shm;
mod silent;
mod simulated;
mod tampered;
mod troubled;
