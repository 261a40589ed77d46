#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("program_library"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::program_library, bytes);
});
