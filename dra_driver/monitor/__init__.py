"""Compute between the grants of a card: what is idle is lent, what is owed is made good.

    turns    which process had the card when → what each grant got of it
    shares   who wants how much → who may have how much
    control  snapshots of a card → terms for each grant; remembers what it must
    monitor  reads the usage files, writes the terms

Without IO: all but monitor.
"""
