//! Wrong calls from C: each is a status and a message, never a crash.

use crate::toolchain::{C, succeeds};
use std::process::Command;

macro_rules! cases {
    ($($case:ident)*) => {$(
        #[test]
        fn $case() {
            let program = C.program("misuse");
            assert_eq!(succeeds(Command::new(program).arg(stringify!($case))), "ok\n");
        }
    )*};
}

cases! {
    null_handles_and_pointers
    freed_foreign_and_made_up_handles
    sizes_of_options
    arguments_that_contradict
    fields_that_do_not_fit
    calls_from_a_callback
    calls_of_a_forked_child
    a_free_while_other_threads_exchange
    traces
    values_of_nothing
    lists_that_are_none
    memory_of_a_gpu
    messages_and_names
}
