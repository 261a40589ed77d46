#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("shm_frames"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::shm_frames, bytes);
});
