"""Warm turns beside long cold prompts on one replica: Shoal with and without slices, and its peers.

    load      what is sent and when, as values        http      one streamed request: chunks, events, token times
    play      the load against one address            measures  figures of what came back
    engine    the engine behind the routers           routers   who is compared, and how each is started
    runs      one run; rounds of runs                 detail    what a reader must know of runs beside their rows
    targets   what slices must reach                  report    tables; pictures: plots
    timeline  one replica's time: data of two runs    drawing   its picture; traced: the engine that it needs

All up to `runs` needs the standard library alone, so that it also runs on the machine of a real GPU.
"""
