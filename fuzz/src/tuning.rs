//! The file of what was measured of a GPU.

use halocline::device::tuning::{Machine, Tuning};

fn machine() -> Machine {
    Machine { gpu: "A GPU".to_owned(), driver: "13.0".to_owned(), multiprocessors: 132 }
}

/// What is taken is within its bounds, and is read again as it was.
pub fn tuning(bytes: &[u8]) {
    let Ok(values) = machine().read(bytes) else { return };
    assert_eq!(values.out_of_bounds(), None);
    assert_eq!(machine().read(machine().write(&values).as_bytes()), Ok(values));
}

pub fn seeds() -> Vec<Vec<u8>> {
    let with_engines = Tuning { copy_engine: [None, Some(1 << 25), Some(u64::MAX)], ..Tuning::HOPPER };
    [Tuning::HOPPER, with_engines].map(|values| machine().write(&values).into_bytes()).to_vec()
}
