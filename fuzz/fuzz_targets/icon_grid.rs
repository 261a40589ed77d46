#![no_main]

// Without a limit of allocations: a part of a compressed file may be much larger than its bytes.
libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("icon_grid"), |bytes: &[u8]| {
    halocline_fuzz::icon_grid(bytes);
});
